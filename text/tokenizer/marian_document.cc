// marian_document() makes the document of a MarianTokenizer: the pieces of source.spm, numbered by
// vocab.json. Source: transformers, models/marian/tokenization_marian.py.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "core/json.h"
#include "core/text.h"
#include "text/tokenizer/converted_documents.h"

namespace ferry::text {
namespace {

using nlohmann::json;
using PieceKind = SentencePieceModel::PieceKind;

constexpr int64_t kAnyNumber = 1 << 20;  // of blanks at an end of a decoded text

struct MarianToken {
  std::string_view key, content;
};
constexpr MarianToken kMarianTokens[] = {
    {"eos_token", "</s>"}, {"unk_token", "<unk>"}, {"pad_token", "<pad>"}};

std::string marian_token(const TokenizerSettings& settings, const MarianToken& token) {
  const auto stated = settings.named.find(token.key);
  if (stated == settings.named.end()) return std::string(token.content);
  return stated->second ? stated->second->content : std::string();
}

using NumberedTokens = std::vector<std::pair<uint32_t, std::string>>;

// Reads {token: id}; the ids are different.
Result<NumberedTokens> read_vocabulary(std::string_view text, const std::string& name) {
  const json object = FERRY_TRY(parse_json(text, name));
  if (!object.is_object()) return bad_input(name + ": not a JSON object");
  NumberedTokens out;
  for (const auto& [token, id] : object.items()) {
    if (!id.is_number_integer() || id < 0 || id > kMaxTokenId) {
      return bad_input(fmt::format("{}: the token {} has no id", name, quoted(token, 60)));
    }
    out.emplace_back(id.get<uint32_t>(), token);
  }
  std::ranges::sort(out);
  return out;
}

// The pieces that the decoder of SentencePiece writes otherwise than they are, or not at all, must
// be special tokens.
Status check_controls(const SentencePieceModel& model, const DocumentBuilder& out,
                      const std::string& name) {
  for (const SentencePieceModel::Piece& piece : model.pieces) {
    const bool plain = piece.kind == PieceKind::kNormal || piece.kind == PieceKind::kUnused;
    if (plain || !out.in_vocabulary(piece.text) || out.is_added(piece.text)) continue;
    return fail(
        ErrorCode::kUnsupported,
        fmt::format("{}: the token {} of vocab.json is a control piece and no special token", name,
                    quoted(piece.text, 60)));
  }
  return {};
}

}  // namespace

Result<TokenizerDocument> marian_document(SentencePieceModel model, std::string_view vocab,
                                          const TokenizerSettings& settings,
                                          const std::string& name, const std::string& vocab_name) {
  if (settings.class_name != "MarianTokenizer" &&
      !(settings.class_name.empty() && settings.model_type == "marian")) {
    return fail(ErrorCode::kUnsupported,
                fmt::format("{}: a source.spm, and the class is {} instead of MarianTokenizer",
                            name, quoted(settings.class_name, 60)));
  }
  DocumentBuilder out(name);
  for (const auto& [id, token] : FERRY_TRY(read_vocabulary(vocab, vocab_name))) {
    out.add_token(token, id);
  }
  const std::string unk = marian_token(settings, kMarianTokens[1]);
  out.field("model") = {{"type", "SentencePiece"}, {"unk_token", unk}};
  for (const MarianToken& token : kMarianTokens) {
    const std::string content = marian_token(settings, token);
    if (content.empty()) continue;
    out.add({.content = content});
  }
  for (const auto& [id, token] : settings.added) out.add(token);
  FERRY_RETURN_IF_ERROR(check_controls(model, out, name));
  FERRY_RETURN_IF_ERROR(out.enclose({}, {marian_token(settings, kMarianTokens[0])}));
  out.field("decoder") = {
      {"type", "Sequence"},
      {"decoders",
       {{{"type", "Replace"}, {"pattern", {{"String", "\xE2\x96\x81"}}}, {"content", " "}},
        {{"type", "Fuse"}},
        {{"type", "Strip"}, {"content", " "}, {"start", kAnyNumber}, {"stop", kAnyNumber}}}}};
  TokenizerDocument document = out.take();
  document.sentencepiece = std::make_shared<SentencePieceModel>(std::move(model));
  return document;
}

}  // namespace ferry::text
