#include "text/tokenizer/converted_documents.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>

#include "core/base64.h"
#include "core/text.h"
#include "core/utf8.h"
#include "text/tokenizer/byte_level.h"
#include "text/tokenizer/ranks.h"

namespace ferry::text {
namespace {

constexpr size_t kMaxRankedToken = 512;  // in bytes

constexpr const char* kDigitGroupsPattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* kDigitsPattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* kO200kPattern =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
// The original excludes Han with a class intersection (&&[^\p{Han}]), which is written as a
// lookahead here.
constexpr const char* kKimiPattern =
    R"([\p{Han}]+|[^\r\n\p{L}\p{N}]?(?:(?!\p{Han})[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}])*(?:(?!\p{Han})[\p{Ll}\p{Lm}\p{Lo}\p{M}])+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?(?:(?!\p{Han})[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}])+(?:(?!\p{Han})[\p{Ll}\p{Lm}\p{Lo}\p{M}])*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

enum class Family { kNone, kQwen, kLlama3, kKimi, kO200k, kCl100k };

Family family_of(const TokenizerSettings& settings, const std::string& file) {
  if (settings.class_name == "QWenTokenizer") return Family::kQwen;
  if (settings.class_name == "TikTokenTokenizer") return Family::kKimi;
  if (settings.class_name.empty() && file == "qwen.tiktoken") return Family::kQwen;
  if (settings.class_name.empty() && file == "o200k_base.tiktoken") return Family::kO200k;
  if (settings.class_name.empty() && file == "cl100k_base.tiktoken") return Family::kCl100k;
  // Llama 1 and 2 have SentencePiece models, so they have no ranks.
  const bool usual = settings.class_name.empty() || settings.class_name == "LlamaTokenizer" ||
                     settings.class_name == "PreTrainedTokenizer";
  return usual && settings.model_type == "llama" ? Family::kLlama3 : Family::kNone;
}

const char* pattern_of(Family family) {
  switch (family) {
    case Family::kQwen:
      return kDigitsPattern;
    case Family::kKimi:
      return kKimiPattern;
    case Family::kO200k:
      return kO200kPattern;
    default:
      return kDigitGroupsPattern;
  }
}

struct Special {
  std::string content;
  uint32_t behind;  // its id minus the number of ranks
};

// Returns the special tokens of Qwen 1 and of the public encodings of tiktoken.
std::vector<Special> specials_of(Family family) {
  if (family == Family::kO200k) return {{"<|endoftext|>", 1}, {"<|endofprompt|>", 20}};
  if (family == Family::kCl100k) {
    return {{"<|endoftext|>", 1},
            {"<|fim_prefix|>", 2},
            {"<|fim_middle|>", 3},
            {"<|fim_suffix|>", 4},
            {"<|endofprompt|>", 20}};
  }
  if (family != Family::kQwen) return {};
  std::vector<Special> specials = {{"<|endoftext|>", 0}, {"<|im_start|>", 1}, {"<|im_end|>", 2}};
  for (uint32_t i = 0; i < 205; ++i) specials.push_back({fmt::format("<|extra_{}|>", i), 3 + i});
  return specials;
}

std::optional<Rank> read_line(std::string_view line) {
  const size_t blank = line.find(' ');
  if (blank == std::string_view::npos || blank == 0) return std::nullopt;
  const auto bytes = from_base64(line.substr(0, blank));
  uint32_t rank = 0;
  const char* end = line.data() + line.size();
  const auto [at, error] = std::from_chars(line.data() + blank + 1, end, rank);
  if (!bytes || bytes->empty() || bytes->size() > kMaxRankedToken || error != std::errc() ||
      at != end || rank > static_cast<uint64_t>(kMaxTokenId)) {
    return std::nullopt;
  }
  return Rank{*bytes, rank};
}

Result<std::vector<Rank>> read_ranks(std::string_view bytes, const std::string& name) {
  std::vector<Rank> ranks;
  size_t number = 0;
  for (std::string_view rest = bytes; !rest.empty();) {
    const std::string_view line = take_line(rest);
    ++number;
    if (line.empty()) continue;
    auto rank = read_line(line);
    if (!rank) {
      return bad_input(
          fmt::format("{}: line {} is not a token in base64 and its rank", name, number));
    }
    ranks.push_back(*std::move(rank));
  }
  std::ranges::sort(ranks, {}, &Rank::rank);
  const auto twice = std::ranges::adjacent_find(ranks, {}, &Rank::rank);
  if (twice == ranks.end()) return ranks;
  return bad_input(fmt::format("{}: the rank {} is there twice", name, twice->rank));
}

// Adds the special tokens to the vocabulary, each with its stated id.
Status add_specials(Family family, const std::vector<Rank>& ranks,
                    const TokenizerSettings& settings, const std::string& name,
                    DocumentBuilder& out) {
  std::map<int64_t, TokenSpec> tokens = settings.added;
  const uint32_t count = ranks.empty() ? 0 : ranks.back().rank + 1;
  if (tokens.empty()) {
    for (const Special& special : specials_of(family)) {
      TokenSpec token;
      token.content = special.content;
      tokens.emplace(count + special.behind, token);
    }
  }
  for (const auto& [id, token] : tokens) {
    if (out.in_vocabulary(token.content) || id < count || id > kMaxTokenId) {
      return bad_input(fmt::format(
          "{}: the added token {} has the id {}{}, expected {} or more", name,
          quoted(token.content, 60), id,
          settings.added.empty() ? "" : fmt::format(" in {}", settings.added_file), count));
    }
    out.add_token(token.content, static_cast<uint32_t>(id));
  }
  for (const auto& [id, token] : tokens) out.add(token);
  return {};
}

}  // namespace

bool is_tiktoken(std::string_view bytes) {
  std::string_view rest = bytes.substr(0, 4 * kMaxRankedToken);
  return read_line(take_line(rest)).has_value();
}

Result<TokenizerDocument> tiktoken_document(std::string_view bytes,
                                            const TokenizerSettings& settings,
                                            const std::string& file, const std::string& name) {
  const Family family = family_of(settings, file);
  if (family == Family::kNone) {
    return fail(
        ErrorCode::kUnsupported,
        fmt::format("{}: tiktoken ranks, and neither tokenizer_class {} of "
                    "tokenizer_config.json nor model_type {} of config.json says how "
                    "texts are split",
                    name, quoted(settings.class_name, 60), quoted(settings.model_type, 60)));
  }
  const std::vector<Rank> ranks = FERRY_TRY(read_ranks(bytes, name));
  DocumentBuilder out(name);
  FERRY_RETURN_IF_ERROR(add_ranks(ranks, out));
  FERRY_RETURN_IF_ERROR(add_specials(family, ranks, settings, name, out));
  set_rank_steps(pattern_of(family), out);
  if (family == Family::kQwen) out.field("normalizer") = {{"type", "NFC"}};
  std::vector<std::string> before;
  const auto bos = settings.named.find("bos_token");
  if (settings.add_bos.value_or(false) && bos != settings.named.end() && bos->second) {
    before = {bos->second->content};
  }
  FERRY_RETURN_IF_ERROR(out.enclose(before, {}));
  return out.take();
}

}  // namespace ferry::text
