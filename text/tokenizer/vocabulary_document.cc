#include "text/tokenizer/converted_documents.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <span>
#include <vector>

#include "core/json.h"
#include "core/text.h"
#include "core/utf8.h"
#include "text/unicode.h"

namespace ferry::text {
namespace {

using nlohmann::json;

constexpr size_t kMaxToken = 512;  // in bytes
// WordPiece makes longer words one unknown token. The length is a constant of the reference.
constexpr int64_t kMaxWord = 100;

// Source: transformers, models/qwen2/tokenization_qwen2.py.
constexpr const char* kQwen2Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

enum class TokenizerKind { kBert, kGpt2, kGptNeoX, kQwen2, kRoberta };

struct ClassRow {
  std::string_view name;
  TokenizerKind kind;
};
constexpr ClassRow kClasses[] = {
    {"BertTokenizer", TokenizerKind::kBert},       {"DistilBertTokenizer", TokenizerKind::kBert},
    {"GPT2Tokenizer", TokenizerKind::kGpt2},       {"CodeGenTokenizer", TokenizerKind::kGpt2},
    {"GPTNeoXTokenizer", TokenizerKind::kGptNeoX}, {"Qwen2Tokenizer", TokenizerKind::kQwen2},
    {"RobertaTokenizer", TokenizerKind::kRoberta},
};
// The tokenizer class of each model_type, used if the settings name no class.
constexpr ClassRow kTypes[] = {
    {"bert", TokenizerKind::kBert},        {"distilbert", TokenizerKind::kBert},
    {"electra", TokenizerKind::kBert},     {"gpt2", TokenizerKind::kGpt2},
    {"codegen", TokenizerKind::kGpt2},     {"opt", TokenizerKind::kGpt2},
    {"phi", TokenizerKind::kGpt2},         {"starcoder2", TokenizerKind::kGpt2},
    {"gpt_neox", TokenizerKind::kGptNeoX}, {"stablelm", TokenizerKind::kGptNeoX},
    {"olmo", TokenizerKind::kGptNeoX},     {"qwen3", TokenizerKind::kQwen2},
    {"roberta", TokenizerKind::kRoberta},  {"bart", TokenizerKind::kRoberta},
};

struct NamedToken {
  std::string_view key, content;
};
constexpr NamedToken kBertTokens[] = {{"unk_token", "[UNK]"},
                                      {"sep_token", "[SEP]"},
                                      {"pad_token", "[PAD]"},
                                      {"cls_token", "[CLS]"},
                                      {"mask_token", "[MASK]"}};
constexpr NamedToken kGpt2Tokens[] = {
    {"bos_token", "<|endoftext|>"}, {"eos_token", "<|endoftext|>"}, {"unk_token", "<|endoftext|>"}};
constexpr NamedToken kGptNeoXTokens[] = {{"bos_token", "<|endoftext|>"},
                                         {"eos_token", "<|endoftext|>"},
                                         {"unk_token", "<|endoftext|>"},
                                         {"pad_token", "<|padding|>"}};
constexpr NamedToken kQwen2Tokens[] = {
    {"eos_token", "<|endoftext|>"}, {"unk_token", "<|endoftext|>"}, {"pad_token", "<|endoftext|>"}};
constexpr NamedToken kRobertaTokens[] = {
    {"bos_token", "<s>"},   {"eos_token", "</s>"}, {"unk_token", "<unk>"},  {"sep_token", "</s>"},
    {"pad_token", "<pad>"}, {"cls_token", "<s>"},  {"mask_token", "<mask>"}};

std::span<const NamedToken> tokens_of(TokenizerKind kind) {
  switch (kind) {
    case TokenizerKind::kBert:
      return kBertTokens;
    case TokenizerKind::kGptNeoX:
      return kGptNeoXTokens;
    case TokenizerKind::kQwen2:
      return kQwen2Tokens;
    case TokenizerKind::kRoberta:
      return kRobertaTokens;
    case TokenizerKind::kGpt2:
      break;
  }
  return kGpt2Tokens;
}

Result<TokenizerKind> kind_of(const TokenizerSettings& settings, bool word_piece,
                              const std::string& name) {
  const std::string& stated = settings.class_name;
  const bool is_class = !stated.empty() && stated != "PreTrainedTokenizer";
  const std::span<const ClassRow> rows =
      is_class ? std::span<const ClassRow>(kClasses) : std::span<const ClassRow>(kTypes);
  const auto row =
      std::ranges::find(rows, is_class ? stated : settings.model_type, &ClassRow::name);
  if (row != rows.end() && (row->kind == TokenizerKind::kBert) == word_piece) return row->kind;
  return fail(ErrorCode::kUnsupported,
              fmt::format("{}: a vocabulary alone, and neither tokenizer_class {} of "
                          "tokenizer_config.json nor model_type {} of config.json says how texts "
                          "are split",
                          name, quoted(stated, 60), quoted(settings.model_type, 60)));
}

// Returns the line without the white space at its end.
Result<std::string_view> trimmed(std::string_view line, const std::string& name) {
  if (!utf8::is_valid(line)) return bad_input(name + ": a token is not UTF-8");
  size_t end = 0;
  for (size_t at = 0; at < line.size();) {
    const auto [c, size] = utf8::decode_valid(line, at);
    at += size;
    if (!unicode::is_space(c)) end = at;
  }
  return line.substr(0, end);
}

// Adds the steps and tokens around a vocabulary, as the reference's tokenizer class does.
class Surroundings {
 public:
  Surroundings(TokenizerKind kind, const TokenizerSettings& settings, const std::string& name,
               DocumentBuilder& out)
      : kind_(kind), settings_(settings), name_(name), out_(out) {}

  // Returns an empty text if there is no such token.
  std::string named(std::string_view key) const {
    const auto stated = settings_.named.find(key);
    if (stated != settings_.named.end()) return stated->second ? stated->second->content : "";
    const std::span<const NamedToken> usual = tokens_of(kind_);
    const auto row = std::ranges::find(usual, key, &NamedToken::key);
    return row == usual.end() ? "" : std::string(row->content);
  }

  // Adds the tokens that the settings list, the named ones, and further special tokens.
  Status add_tokens() {
    for (const auto& [id, token] : settings_.added) {
      out_.add(token);
      if (out_.find(token.content) == id) continue;
      return bad_input(fmt::format("{}: the added token {} has the id {} in {}, expected {}", name_,
                                   quoted(token.content, 60), id, settings_.added_file,
                                   *out_.find(token.content)));
    }
    for (const std::string_view key : TokenizerSettings::kNames) {
      TokenSpec token;
      token.content = named(key);
      // Qwen2Tokenizer adds all special tokens once more, as plain tokens.
      const bool again = kind_ == TokenizerKind::kQwen2;
      if (token.content.empty() || (out_.is_added(token.content) && !again)) continue;
      const auto stated = settings_.named.find(key);
      const bool flags = !again && stated != settings_.named.end() && stated->second;
      out_.add(flags ? *stated->second : token);
    }
    for (const std::string& content : settings_.extra) {
      TokenSpec token;
      token.content = content;
      if (!out_.is_added(content)) out_.add(token);
    }
    return {};
  }

  Status enclose() {
    std::vector<std::string> before, behind;
    if (kind_ == TokenizerKind::kBert || kind_ == TokenizerKind::kRoberta) {
      before = {named("cls_token")};
      behind = {named("sep_token")};
    } else {
      if (settings_.add_bos.value_or(false)) before = {named("bos_token")};
      if (settings_.add_eos.value_or(false)) behind = {named("eos_token")};
    }
    std::erase(before, "");
    std::erase(behind, "");
    return out_.enclose(before, behind);
  }

 private:
  TokenizerKind kind_;
  const TokenizerSettings& settings_;
  const std::string& name_;
  DocumentBuilder& out_;
};

Status add_vocabulary(std::string_view text, const std::string& name, DocumentBuilder& out) {
  const json vocab = FERRY_TRY(parse_json(text, name));
  if (!vocab.is_object()) return bad_input(name + ": not an object of tokens and their ids");
  for (const auto& [token, id] : vocab.items()) {
    if (!id.is_number_unsigned() || id.get<uint64_t>() > static_cast<uint64_t>(kMaxTokenId)) {
      return bad_input(fmt::format("{}: {} has no id", name, quoted(token, 60)));
    }
    out.add_token(token, id.get<uint32_t>());
  }
  return {};
}

// `vocabulary` is the path of the vocabulary file, which is in the folder of merges.txt.
Status add_merges(std::string_view text, const std::string& vocabulary, DocumentBuilder& out) {
  const size_t end = vocabulary.ends_with(kBpeFile) ? vocabulary.size() - kBpeFile.size() : 0;
  const std::string name = vocabulary.substr(0, end).append(kMergesFile);
  size_t number = 0;
  for (std::string_view rest = text; !rest.empty();) {
    const std::string_view line = take_line(rest);
    ++number;
    if (line.starts_with("#version")) continue;
    const size_t blank = line.find(' ');
    const bool pair = blank != std::string_view::npos && line.rfind(' ') == blank;
    const std::string_view left = line.substr(0, pair ? blank : 0);
    const std::string_view right = line.substr(pair ? blank + 1 : 0);
    if (!pair || !out.in_vocabulary(left) || !out.in_vocabulary(right)) {
      return bad_input(
          fmt::format("{}: line {} is not two tokens of the vocabulary", name, number));
    }
    const std::string joined = std::string(left).append(right);
    if (!out.in_vocabulary(joined)) {
      return bad_input(fmt::format("{}: line {} makes {}, which is not in the vocabulary", name,
                                   number, quoted(joined, 60)));
    }
    FERRY_RETURN_IF_ERROR(out.add_merge(left, right));
  }
  return {};
}

}  // namespace

Result<TokenizerDocument> word_piece_document(std::string_view lines,
                                              const TokenizerSettings& settings,
                                              const std::string& name) {
  const TokenizerKind kind = FERRY_TRY(kind_of(settings, /*word_piece=*/true, name));
  DocumentBuilder out(name);
  Surroundings around(kind, settings, name, out);
  std::map<std::string_view, uint32_t> ids;  // the last of equal tokens counts
  uint32_t id = 0;
  for (std::string_view rest = lines; !rest.empty(); ++id) {
    const std::string_view token = FERRY_TRY(trimmed(take_line(rest), name));
    if (token.size() > kMaxToken || id > kMaxTokenId) {
      return bad_input(
          fmt::format("{}: line {}: more tokens or a longer one than are supported", name, id + 1));
    }
    ids[token] = id;
  }
  for (const auto& [token, number] : ids) out.add_token(token, number);
  const std::string unk = around.named("unk_token");
  if (!out.in_vocabulary(unk)) {
    return bad_input(fmt::format("{}: unk_token {} is not there", name, quoted(unk, 60)));
  }
  FERRY_RETURN_IF_ERROR(around.add_tokens());
  const bool lower = settings.lower_case.value_or(true);
  json normalizer = {{"type", "BertNormalizer"}, {"clean_text", true}, {"lowercase", lower}};
  normalizer["handle_chinese_chars"] = settings.chinese_chars.value_or(true);
  normalizer["strip_accents"] =
      settings.strip_accents ? json(*settings.strip_accents) : json(nullptr);
  out.field("normalizer") = std::move(normalizer);
  out.field("pre_tokenizer") = {{"type", "BertPreTokenizer"}};
  out.field("model") = {{"type", "WordPiece"},
                        {"unk_token", unk},
                        {"continuing_subword_prefix", "##"},
                        {"max_input_chars_per_word", kMaxWord}};
  out.field("decoder") = {{"type", "WordPiece"}, {"prefix", "##"}, {"cleanup", true}};
  FERRY_RETURN_IF_ERROR(around.enclose());
  return out.take();
}

Result<TokenizerDocument> byte_bpe_document(std::string_view vocab, std::string_view merges,
                                            const TokenizerSettings& settings,
                                            const std::string& name) {
  const TokenizerKind kind = FERRY_TRY(kind_of(settings, /*word_piece=*/false, name));
  DocumentBuilder out(name);
  FERRY_RETURN_IF_ERROR(add_vocabulary(vocab, name, out));
  FERRY_RETURN_IF_ERROR(add_merges(merges, name, out));
  Surroundings around(kind, settings, name, out);
  FERRY_RETURN_IF_ERROR(around.add_tokens());
  out.field("model") = {{"type", "BPE"}, {"fuse_unk", false}, {"byte_fallback", false}};
  const bool prefix = settings.add_prefix_space.value_or(false);
  const json bytes = {{"type", "ByteLevel"},
                      {"add_prefix_space", prefix},
                      {"use_regex", kind != TokenizerKind::kQwen2}};
  if (kind == TokenizerKind::kQwen2) {
    const json split = {{"type", "Split"},
                        {"pattern", {{"Regex", kQwen2Pattern}}},
                        {"behavior", "Isolated"},
                        {"invert", false}};
    out.field("pre_tokenizer") = {{"type", "Sequence"}, {"pretokenizers", {split, bytes}}};
  } else {
    out.field("pre_tokenizer") = bytes;
  }
  if (kind == TokenizerKind::kQwen2 || kind == TokenizerKind::kGptNeoX) {
    out.field("normalizer") = {{"type", "NFC"}};
  }
  out.field("decoder") = {{"type", "ByteLevel"}};
  FERRY_RETURN_IF_ERROR(around.enclose());
  return out.take();
}

}  // namespace ferry::text
