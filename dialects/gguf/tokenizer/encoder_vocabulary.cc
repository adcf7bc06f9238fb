// Source: llama.cpp, conversion/bert.py.
#include "dialects/gguf/tokenizer/encoder_vocabulary.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>

#include "core/text.h"

namespace ferry::text {
namespace {

constexpr std::string_view kWordMark = "\xe2\x96\x81";  // U+2581
constexpr std::string_view kContinues = "##";
constexpr float kNoScore = -10000;

int32_t token_type_of(SentencePieceModel::PieceKind kind) {
  using enum SentencePieceModel::PieceKind;
  return static_cast<int32_t>(kind == kUserDefined ? kNormal : kind);
}

Status check_unigram(const SentencePieceModel& model, int64_t size, int64_t least,
                     const std::string& name) {
  if (model.kind != SentencePieceModel::Kind::kUnigram) {
    return fail(ErrorCode::kUnsupported, fmt::format("{}: is no Unigram model", name));
  }
  if (std::ssize(model.pieces) <= size && size > least) return {};
  return fail(ErrorCode::kUnsupported,
              fmt::format("{}: has {} pieces, but vocab_size is {}; GGUF cannot say that", name,
                          model.pieces.size(), size));
}

}  // namespace

bool has_token_model(const TokenizerDocument& document, std::string_view type) {
  const auto model = document.root.find("model");
  if (model == document.root.end() || !model->is_object()) return false;
  const auto stated = model->find("type");
  return stated != model->end() && *stated == type;
}

Result<GgufVocabulary> word_piece_vocabulary(const TokenizerDocument& document,
                                             Tokenizer& tokenizer,
                                             const GgufVocabularySource& source) {
  GgufVocabulary out = FERRY_TRY(byte_level_vocabulary(document, tokenizer, source));
  for (size_t id = 0; id < out.tokens.size(); ++id) {
    std::string& token = out.tokens[id];
    if (out.types[id] == SentencePiece::kControl) continue;
    const bool continues = token.starts_with(kContinues);
    token = continues ? token.substr(kContinues.size()) : std::string(kWordMark) + std::move(token);
  }
  return out;
}

Result<GgufVocabulary> unigram_vocabulary(const SentencePieceModel& model, int64_t size,
                                          const std::string& name) {
  constexpr std::pair<const char*, int32_t> kFirst[] = {{"<s>", SentencePiece::kControl},
                                                        {"<pad>", SentencePiece::kControl},
                                                        {"</s>", SentencePiece::kControl},
                                                        {"<unk>", SentencePiece::kUnknown}};
  constexpr int64_t kMoved = 3;  // pieces that these tokens replace
  const int64_t pieces = std::ssize(model.pieces);
  FERRY_RETURN_IF_ERROR(check_unigram(model, size, kMoved + 1, name));
  GgufVocabulary out;
  const auto add = [&](std::string token, float score, int32_t type) {
    out.tokens.push_back(std::move(token));
    out.scores.push_back(score);
    out.types.push_back(type);
  };
  for (const auto& [token, type] : kFirst) add(token, 0, type);
  for (int64_t id = kMoved; id + 1 < size; ++id) {
    if (id < pieces) {
      const SentencePieceModel::Piece& piece = model.pieces[static_cast<size_t>(id)];
      add(piece.text, piece.score, token_type_of(piece.kind));
    } else {
      add(fmt::format("[PAD{}]", id), kNoScore, SentencePiece::kUnused);
    }
  }
  return out;
}

Result<GgufVocabulary> pieces_vocabulary(const SentencePieceModel& model,
                                         const nlohmann::json& added, int64_t size,
                                         const std::string& name) {
  constexpr float kAddedScore = -1000;
  FERRY_RETURN_IF_ERROR(check_unigram(model, size, 0, name));
  GgufVocabulary out;
  for (int64_t id = 0; id < size; ++id) {
    const bool known = id < std::ssize(model.pieces);
    const auto piece = known ? model.pieces[static_cast<size_t>(id)] : SentencePieceModel::Piece{};
    out.tokens.push_back(known ? piece.text : fmt::format("[PAD{}]", id));
    out.scores.push_back(known ? piece.score : kNoScore);
    out.types.push_back(known ? token_type_of(piece.kind) : int32_t{SentencePiece::kUnused});
  }
  if (added.is_null()) return out;
  if (!added.is_object()) return bad_input("added_tokens.json: not an object");
  for (const auto& [text, id] : added.items()) {
    if (!id.is_number_integer() || id < 0) {
      return bad_input(fmt::format("added_tokens.json: {} is no id", quoted(text, 60)));
    }
    if (id >= size) continue;
    const auto at = id.get<size_t>();
    out.tokens[at] = text;
    out.scores[at] = kAddedScore;
    out.types[at] = SentencePiece::kUserDefined;
  }
  return out;
}

// The type of an array, that of its elements, their number, and the elements.
GgufStoredValue gguf_byte_array(std::string_view bytes) {
  constexpr uint32_t kArray = 9, kU8 = 0;
  GgufStoredValue out;
  const auto put = [&](uint64_t value, size_t size) {
    for (size_t i = 0; i < size; ++i) {
      out.bytes.push_back(static_cast<std::byte>(value >> (8 * i)));
    }
  };
  put(kArray, 4);
  put(kU8, 4);
  put(bytes.size(), 8);
  for (const char byte : bytes) out.bytes.push_back(static_cast<std::byte>(byte));
  return out;
}

}  // namespace ferry::text
