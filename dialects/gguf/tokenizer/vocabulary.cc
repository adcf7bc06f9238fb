#include "dialects/gguf/tokenizer/vocabulary.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <cstring>
#include <map>
#include <optional>
#include <utility>

#include "core/text.h"
#include "core/utf8.h"
#include "text/tokenizer/tokenizer_json.h"

namespace ferry::text {
namespace {

// Reads the fields of a protobuf message, one after the other.
class Message {
 public:
  explicit Message(std::string_view bytes) : left_(bytes) {}

  enum Wire : uint32_t { kVarint = 0, kFixed64 = 1, kLengthDelimited = 2, kFixed32 = 5 };
  struct Field {
    uint64_t number = 0;
    uint32_t wire = 0;
    uint64_t value = 0;      // value of a varint or a fixed width
    std::string_view bytes;  // contents of kLengthDelimited
  };

  bool at_end() const { return left_.empty(); }
  // Returns nullopt where the bytes are no field.
  std::optional<Field> next() {
    const auto tag = varint();
    if (!tag || (*tag >> 3) == 0) return std::nullopt;
    Field field;
    field.number = *tag >> 3;
    field.wire = static_cast<uint32_t>(*tag & 7);
    if (field.wire == kFixed64 || field.wire == kFixed32) {
      return fixed(field, field.wire == kFixed64 ? 8 : 4);
    }
    const auto value = varint();
    if (!value || (field.wire != kVarint && field.wire != kLengthDelimited)) return std::nullopt;
    field.value = *value;
    if (field.wire == kVarint) return field;
    if (*value > left_.size()) return std::nullopt;
    field.bytes = left_.substr(0, static_cast<size_t>(*value));
    left_.remove_prefix(static_cast<size_t>(*value));
    return field;
  }

 private:
  std::optional<uint64_t> varint() {
    uint64_t value = 0;
    for (unsigned shift = 0; shift < 64 && !left_.empty(); shift += 7) {
      const auto byte = static_cast<unsigned char>(left_.front());
      left_.remove_prefix(1);
      value |= uint64_t{byte & 0x7Fu} << shift;
      if (byte < 0x80) return value;
    }
    return std::nullopt;
  }
  std::optional<Field> fixed(Field field, size_t size) {
    if (left_.size() < size) return std::nullopt;
    for (size_t i = 0; i < size; ++i) {
      field.value |= uint64_t{static_cast<unsigned char>(left_[i])} << (8 * i);
    }
    left_.remove_prefix(size);
    return field;
  }

  std::string_view left_;
};

constexpr uint64_t kPieces = 1;  // field of the model
constexpr uint64_t kText = 1, kScore = 2, kType = 3;

std::optional<SentencePiece> read_spelled_piece(std::string_view bytes) {
  Message message(bytes);
  SentencePiece piece;
  while (!message.at_end()) {
    const auto field = message.next();
    if (!field) return std::nullopt;
    if (field->number == kText && field->wire == Message::kLengthDelimited) {
      piece.text = field->bytes;
    } else if (field->number == kScore && field->wire == Message::kFixed32) {
      piece.score = std::bit_cast<float>(static_cast<uint32_t>(field->value));
    } else if (field->number == kType && field->wire == Message::kVarint) {
      if (field->value < SentencePiece::kNormal || field->value > SentencePiece::kByte) {
        return std::nullopt;
      }
      piece.type = static_cast<uint32_t>(field->value);
    }
  }
  if (!utf8::is_valid(piece.text)) return std::nullopt;
  return piece;
}

}  // namespace

Result<std::vector<SentencePiece>> read_sentence_pieces(std::string_view bytes,
                                                        const std::string& name) {
  Message model(bytes);
  std::vector<SentencePiece> pieces;
  while (!model.at_end()) {
    const auto field = model.next();
    if (!field) return bad_input(name + ": is no SentencePiece model");
    if (field->number != kPieces || field->wire != Message::kLengthDelimited) continue;
    auto piece = read_spelled_piece(field->bytes);
    if (!piece) return bad_input(fmt::format("{}: piece {} is malformed", name, pieces.size()));
    if (std::ssize(pieces) > kMaxTokenId) return bad_input(name + ": too many pieces");
    pieces.push_back(*std::move(piece));
  }
  if (pieces.empty()) return bad_input(name + ": has no pieces");
  return pieces;
}

namespace {

using nlohmann::json;

constexpr const char* kSpaceMark = "\xe2\x96\x81";  // U+2581, a space in SentencePiece
constexpr float kPadScore = -10000, kAddedScore = -1000;

enum TokenType : int32_t {
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,
  kUserDefined = 4,
  kUnused = 5,
  kByte = 6
};

const json& vocabulary_member(const json& value, std::string_view key) {
  static const json nothing;
  if (!value.is_object()) return nothing;
  const auto at = value.find(key);
  return at == value.end() ? nothing : *at;
}

bool is_true(const json& value) { return value.is_boolean() && value.get<bool>(); }

std::string type_of(const json& step) {
  return vocabulary_member(step, "type").is_string()
             ? vocabulary_member(step, "type").get<std::string>()
             : "";
}

bool enclosed(std::string_view text, std::string_view begin, std::string_view end) {
  return text.size() >= begin.size() + end.size() && text.starts_with(begin) && text.ends_with(end);
}

// Whether a token is a control token although some files do not say so.
bool looks_special(std::string_view token) {
  constexpr std::string_view kNames[] = {"<pad>", "<mask>", "<2mass>", "[@BOS@]"};
  return std::ranges::count(kNames, token) > 0 || enclosed(token, "<|", "|>") ||
         enclosed(token, "<\xef\xbd\x9c", "\xef\xbd\x9c>") || enclosed(token, "<unused", ">");
}

std::string spaces_for_markers(std::string token) {
  constexpr std::string_view kMarker = kSpaceMark;
  for (size_t at = 0; (at = token.find(kMarker, at)) != std::string::npos; ++at) {
    token.replace(at, kMarker.size(), " ");
  }
  return token;
}

struct Added {
  std::string content;
  bool special = false, normalized = false;
};

Result<Added> read_added(const json& token, const std::string& where) {
  const json& content = vocabulary_member(token, "content");
  if (!content.is_string()) return bad_input(where + ": an added token has no content");
  Added added;
  added.content = content.get<std::string>();
  added.special = is_true(vocabulary_member(token, "special"));
  const json& normalized = vocabulary_member(token, "normalized");
  added.normalized = normalized.is_boolean() ? normalized.get<bool>() : !added.special;
  return added;
}

using AddedById = std::map<int64_t, Added>;

std::optional<int64_t> id_of(std::string_view digits) {
  int64_t id = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), id);
  const bool whole = error == std::errc() && end == digits.data() + digits.size();
  return whole && id >= 0 && id <= kMaxTokenId ? std::optional(id) : std::nullopt;
}

// Reads `added_tokens` of tokenizer.json.
Status read_document_tokens(const TokenizerDocument& document, AddedById& out) {
  for (const json& token : vocabulary_member(document.root, "added_tokens")) {
    const json& id = vocabulary_member(token, "id");
    if (!id.is_number_integer() || id.get<int64_t>() < 0 || id.get<int64_t>() > kMaxTokenId) {
      return bad_input(document.name + ": an added token has no id");
    }
    out.insert_or_assign(id.get<int64_t>(), FERRY_TRY(read_added(token, document.name)));
  }
  return {};
}

// Reads `added_tokens_decoder` of tokenizer_config.json: {"ID": {"content": ...}}.
Result<AddedById> config_tokens(const json& tokenizer_config) {
  constexpr const char* kWhere = "tokenizer_config.json: added_tokens_decoder";
  AddedById out;
  const json& decoder = vocabulary_member(tokenizer_config, "added_tokens_decoder");
  if (!decoder.is_object()) return out;
  for (const auto& [key, token] : decoder.items()) {
    const auto id = id_of(key);
    if (!id) return bad_input(fmt::format("{}: {} is no id", kWhere, quoted(key, 40)));
    out.insert_or_assign(*id, FERRY_TRY(read_added(token, kWhere)));
  }
  return out;
}

// Returns the added tokens of tokenizer.json, and those that only tokenizer_config.json has.
Result<AddedById> all_added(const TokenizerDocument& document, const json& tokenizer_config) {
  AddedById out = FERRY_TRY(config_tokens(tokenizer_config));
  FERRY_RETURN_IF_ERROR(read_document_tokens(document, out));
  return out;
}

// Returns the texts of the model's tokens by id; nullopt where there is none.
std::vector<std::optional<std::string>> base_tokens(const TokenizerDocument& document) {
  int64_t bound = 0;
  for (const auto& token : document.vocab) bound = std::max(bound, int64_t{token.id} + 1);
  std::vector<std::optional<std::string>> out(static_cast<size_t>(bound));
  for (const auto& token : document.vocab) out[token.id] = std::string(document.text(token.text));
  return out;
}

Status check_size(int64_t bound, const std::string& name, int64_t size) {
  if (bound <= size) return {};
  return fail(ErrorCode::kUnsupported,
              fmt::format("{}: has tokens up to id {}, but vocab_size is {}; GGUF cannot say that",
                          name, bound - 1, size));
}

std::string padding(size_t id) { return fmt::format("[PAD{}]", id); }

bool is_byte_token(std::string_view token) {
  const auto is_hex = [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
  };
  return token.size() == 6 && enclosed(token, "<0x", ">") && is_hex(token[3]) && is_hex(token[4]);
}

// Returns the contents of the tokens that tokenizer_config.json names.
std::vector<std::string> named_specials(const json& config) {
  std::vector<std::string> out;
  const auto add = [&](const json& entry) {
    const json& content = entry.is_object() ? vocabulary_member(entry, "content") : entry;
    if (content.is_string()) out.push_back(content.get<std::string>());
  };
  for (const char* name : {"bos_token", "eos_token", "unk_token", "sep_token", "pad_token",
                           "cls_token", "mask_token"}) {
    add(vocabulary_member(config, name));
  }
  for (const char* list : {"additional_special_tokens", "extra_special_tokens"}) {
    for (const json& entry : vocabulary_member(config, list)) add(entry);
  }
  return out;
}

bool has_step(const json& steps, const char* list, std::string_view type) {
  if (type_of(steps) == type) return true;
  return std::ranges::any_of(vocabulary_member(steps, list),
                             [&](const json& step) { return type_of(step) == type; });
}

}  // namespace

bool is_byte_level(const TokenizerDocument& document) {
  return has_step(vocabulary_member(document.root, "pre_tokenizer"), "pretokenizers",
                  "ByteLevel") &&
         type_of(vocabulary_member(document.root, "model")) == "BPE";
}

bool has_byte_fallback(const TokenizerDocument& document) {
  const json& model = vocabulary_member(document.root, "model");
  return type_of(model) == "BPE" && is_true(vocabulary_member(model, "byte_fallback")) &&
         type_of(vocabulary_member(document.root, "decoder")) == "Sequence";
}

Result<GgufVocabulary> byte_level_vocabulary(const TokenizerDocument& document,
                                             Tokenizer& tokenizer,
                                             const GgufVocabularySource& source) {
  const AddedById added = FERRY_TRY(all_added(document, source.tokenizer_config));
  const auto base = base_tokens(document);
  const int64_t last_added = added.empty() ? 0 : added.rbegin()->first + 1;
  FERRY_RETURN_IF_ERROR(
      check_size(std::max(std::ssize(base), last_added), document.name, source.size));
  GgufVocabulary out;
  for (size_t id = 0; id < static_cast<size_t>(source.size); ++id) {
    const auto at = added.find(static_cast<int64_t>(id));
    if (at == added.end()) {
      const bool is_token = id < base.size() && base[id];
      out.tokens.push_back(is_token ? *base[id] : padding(id));
      out.types.push_back(is_token ? kNormal : kUnused);
      continue;
    }
    std::string token = at->second.content;
    if (!at->second.normalized) {  // a normalized token is written as the tokenizer gives it
      const auto ids = FERRY_TRY(tokenizer.encode(token, false));
      token = FERRY_TRY(tokenizer.decode(ids, false));
    }
    const bool control = at->second.special || looks_special(token);
    out.types.push_back(control ? kControl : kUserDefined);
    out.tokens.push_back(control ? std::move(token) : spaces_for_markers(std::move(token)));
  }
  return out;
}

std::vector<std::string> byte_level_merges(const TokenizerDocument& document) {
  std::vector<std::string> out;
  out.reserve(document.merges.size());
  for (const auto& merge : document.merges) {
    std::string& line = out.emplace_back();
    for (const auto& part : {merge.left, merge.right}) {
      if (!line.empty()) line += ' ';
      // A space within a part takes its byte-level form.
      for (const char c : document.text(part)) {
        if (c == ' ') {
          line += "\xc4\xa0";
        } else {
          line += c;
        }
      }
    }
  }
  return out;
}

Result<GgufVocabulary> unscored_vocabulary(const TokenizerDocument& document,
                                           const GgufVocabularySource& source) {
  const AddedById added = FERRY_TRY(all_added(document, source.tokenizer_config));
  const auto base = base_tokens(document);
  const auto specials = named_specials(source.tokenizer_config);
  const int64_t last_added = added.empty() ? 0 : added.rbegin()->first + 1;
  FERRY_RETURN_IF_ERROR(
      check_size(std::max(std::ssize(base), last_added), document.name, source.size));
  GgufVocabulary out;
  for (size_t id = 0; id < static_cast<size_t>(source.size); ++id) {
    const auto at = added.find(static_cast<int64_t>(id));
    std::string token = padding(id);
    int32_t type = kUnused;
    float score = kPadScore;
    if (id < base.size() && base[id]) {
      token = *base[id];
      type = std::ranges::count(specials, token) > 0 ? kControl : kNormal;
      if (is_byte_token(token)) type = kByte;
      score = kAddedScore;
    } else if (at != added.end()) {
      token = at->second.content;
      type = std::ranges::count(specials, token) > 0 ? kControl : kUserDefined;
      score = kAddedScore;
    }
    out.tokens.push_back(std::move(token));
    out.scores.push_back(score);
    out.types.push_back(type);
  }
  return out;
}

namespace {

int32_t piece_type(uint32_t type) {
  return type == SentencePiece::kUserDefined ? kNormal : static_cast<int32_t>(type);
}

void place(GgufVocabulary& out, int64_t id, std::string token, int32_t type) {
  if (id >= std::ssize(out.tokens)) return;  // the model has no row for it
  const auto at = static_cast<size_t>(id);
  out.tokens[at] = std::move(token);
  out.scores[at] = kAddedScore;
  out.types[at] = type;
}

}  // namespace

Result<GgufVocabulary> sentence_piece_vocabulary(const std::vector<SentencePiece>& pieces,
                                                 const json& added_tokens,
                                                 const TokenizerDocument* document,
                                                 AddedTokenRule rule,
                                                 const GgufVocabularySource& source) {
  const auto size = static_cast<size_t>(source.size);
  GgufVocabulary out;
  for (size_t id = 0; id < size; ++id) out.tokens.push_back(padding(id));
  out.scores.assign(size, kPadScore);
  out.types.assign(size, kUnused);
  for (size_t id = 0; id < std::min(size, pieces.size()); ++id) {
    out.tokens[id] = pieces[id].text;
    out.scores[id] = pieces[id].score;
    out.types[id] = piece_type(pieces[id].type);
  }
  if (added_tokens.is_object()) {
    for (const auto& [token, id] : added_tokens.items()) {
      if (!id.is_number_unsigned() || id.get<uint64_t>() > static_cast<uint64_t>(kMaxTokenId)) {
        return bad_input(fmt::format("added_tokens.json: {} has no id", quoted(token, 40)));
      }
      place(out, id.get<int64_t>(), token, kUserDefined);
    }
  }
  AddedById added = FERRY_TRY(config_tokens(source.tokenizer_config));
  const bool by_name = rule == AddedTokenRule::kByName;
  if (!by_name && document != nullptr) {
    FERRY_RETURN_IF_ERROR(read_document_tokens(*document, added));
  }
  for (auto& [id, token] : added) {
    const bool control = token.special || (by_name && looks_special(token.content));
    std::string text = std::move(token.content);
    if (!control && by_name) text = spaces_for_markers(std::move(text));
    place(out, id, std::move(text), control ? kControl : kUserDefined);
  }
  return out;
}

}  // namespace ferry::text
