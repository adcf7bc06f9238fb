#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "core/base64.h"
#include "core/json.h"
#include "core/text.h"
#include "text/tokenizer/converted_documents.h"
#include "text/tokenizer/ranks.h"

namespace ferry::text {
namespace {

using nlohmann::json;

constexpr size_t kMostTekkenToken = 512;  // in bytes
constexpr size_t kSingleBytes = 256;
constexpr const char* kBegin = "<s>";
// Versions whose texts are encoded alike.
constexpr std::array<std::string_view, 5> kVersions = {"v3", "v7", "v11", "v13", "v15"};
// The control tokens of files up to version 7 that list none.
constexpr std::array<std::string_view, 20> kUsualTokens = {"<unk>",
                                                           "<s>",
                                                           "</s>",
                                                           "[INST]",
                                                           "[/INST]",
                                                           "[AVAILABLE_TOOLS]",
                                                           "[/AVAILABLE_TOOLS]",
                                                           "[TOOL_RESULTS]",
                                                           "[/TOOL_RESULTS]",
                                                           "[TOOL_CALLS]",
                                                           "[IMG]",
                                                           "<pad>",
                                                           "[IMG_BREAK]",
                                                           "[IMG_END]",
                                                           "[PREFIX]",
                                                           "[MIDDLE]",
                                                           "[SUFFIX]",
                                                           "[SYSTEM_PROMPT]",
                                                           "[/SYSTEM_PROMPT]",
                                                           "[TOOL_CONTENT]"};

struct TekkenSizes {
  std::string pattern, version;
  size_t tokens = 0, controls = 0;
};

Result<size_t> count_in(const json& config, const char* key, const std::string& name) {
  const auto found = config.find(key);
  if (found != config.end() && found->is_number_unsigned() &&
      *found <= static_cast<uint64_t>(kMaxTokenId)) {
    return found->get<size_t>();
  }
  return bad_input(fmt::format("{}: 'config.{}' is not a number of tokens", name, key));
}

Result<TekkenSizes> read_tekken_sizes(const json& file, const std::string& name) {
  const auto config = file.is_object() ? file.find("config") : file.end();
  if (!file.is_object() || config == file.end() || !config->is_object()) {
    return bad_input(name + ": 'config' is not an object");
  }
  TekkenSizes sizes;
  for (const auto& [key, text] :
       {std::pair("pattern", &sizes.pattern), std::pair("version", &sizes.version)}) {
    const auto found = config->find(key);
    if (found == config->end() || !found->is_string()) {
      return bad_input(fmt::format("{}: 'config.{}' is not a text", name, key));
    }
    *text = found->get<std::string>();
  }
  if (std::ranges::count(kVersions, sizes.version) == 0) {
    return fail(ErrorCode::kUnsupported, fmt::format("{}: 'config.version' is {}: not supported",
                                                     name, quoted(sizes.version, 40)));
  }
  sizes.tokens = FERRY_TRY(count_in(*config, "default_vocab_size", name));
  sizes.controls = FERRY_TRY(count_in(*config, "default_num_special_tokens", name));
  if (sizes.controls <= sizes.tokens) return sizes;
  return bad_input(name + ": more control tokens than tokens");
}

// Returns the texts of the control tokens that the file lists, or of the usual ones.
Result<std::vector<std::string>> listed_controls(const json& file, const TekkenSizes& sizes,
                                                 const std::string& name) {
  const auto list = file.find("special_tokens");
  if (list == file.end() || list->is_null()) {
    if (sizes.version == "v3" || sizes.version == "v7") {
      return std::vector<std::string>(kUsualTokens.begin(), kUsualTokens.end());
    }
    return bad_input(name + ": 'special_tokens' is missing");
  }
  if (!list->is_array()) return bad_input(name + ": 'special_tokens' is not a list");
  std::vector<std::string> texts;
  for (const json& token : *list) {
    const bool whole = token.is_object() && token.contains("rank") && token.contains("token_str") &&
                       token["rank"] == texts.size() && token["token_str"].is_string() &&
                       !token["token_str"].get_ref<const std::string&>().empty() &&
                       token["token_str"].get_ref<const std::string&>().size() <= kMaxStepText;
    if (!whole) {
      return bad_input(
          fmt::format("{}: special_tokens[{}] has not this rank and a text", name, texts.size()));
    }
    texts.push_back(token["token_str"].get<std::string>());
  }
  return texts;
}

Status add_controls(const json& file, const TekkenSizes& sizes, const std::string& name,
                    DocumentBuilder& out) {
  std::vector<std::string> texts = FERRY_TRY(listed_controls(file, sizes, name));
  if (texts.size() > sizes.controls) {
    return bad_input(fmt::format("{}: {} control tokens, 'default_num_special_tokens' is {}", name,
                                 texts.size(), sizes.controls));
  }
  while (texts.size() < sizes.controls) texts.push_back(fmt::format("<SPECIAL_{}>", texts.size()));
  for (size_t id = 0; id < texts.size(); ++id) {
    if (out.in_vocabulary(texts[id])) {
      return bad_input(fmt::format("{}: the token {} is there twice", name, quoted(texts[id], 60)));
    }
    out.add_token(texts[id], static_cast<uint32_t>(id));
  }
  for (const std::string& text : texts) out.add({.content = text});
  return {};
}

// Returns the first tokens of the list, whose ids are behind those of the control tokens.
Result<std::vector<Rank>> read_tekken_ranks(const json& file, const TekkenSizes& sizes,
                                            const std::string& name) {
  const size_t count = sizes.tokens - sizes.controls;
  const auto list = file.find("vocab");
  if (list == file.end() || !list->is_array() || list->size() < count || count < kSingleBytes) {
    return bad_input(fmt::format("{}: 'vocab' is not a list of {} tokens or more", name,
                                 std::max(count, kSingleBytes)));
  }
  std::vector<Rank> ranks;
  for (size_t i = 0; i < count; ++i) {
    const json& token = (*list)[i];
    std::optional<std::string> bytes;
    if (token.is_object() && token.contains("rank") && token["rank"] == i &&
        token.contains("token_bytes") && token["token_bytes"].is_string()) {
      bytes = from_base64(token["token_bytes"].get_ref<const std::string&>());
    }
    const bool single = bytes && bytes->size() == 1 &&
                        static_cast<size_t>(static_cast<unsigned char>(bytes->front())) == i;
    if (!bytes || bytes->empty() || bytes->size() > kMostTekkenToken ||
        (i < kSingleBytes && !single)) {
      return bad_input(fmt::format("{}: vocab[{}] has not this rank and bytes in base64", name, i));
    }
    ranks.push_back({*std::move(bytes), static_cast<uint32_t>(sizes.controls + i)});
  }
  return ranks;
}

}  // namespace

Result<TokenizerDocument> tekken_document(std::string_view bytes, const std::string& name) {
  const json file = FERRY_TRY(parse_json(bytes, name));
  const TekkenSizes sizes = FERRY_TRY(read_tekken_sizes(file, name));
  const std::vector<Rank> ranks = FERRY_TRY(read_tekken_ranks(file, sizes, name));
  DocumentBuilder out(name);
  FERRY_RETURN_IF_ERROR(add_controls(file, sizes, name, out));
  FERRY_RETURN_IF_ERROR(add_ranks(ranks, out));
  set_rank_steps(sizes.pattern, out);
  FERRY_RETURN_IF_ERROR(out.enclose({kBegin}, {}));
  out.set_plain_texts();
  return out.take();
}

}  // namespace ferry::text
