#include "text/tokenizer/tokenizer_settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>

#include "core/json.h"
#include "core/text.h"
#include "text/tokenizer/tokenizer_json.h"

namespace ferry::text {
namespace {

using nlohmann::json;

constexpr uint64_t kMaxFile = uint64_t{16} << 20;
constexpr const char* kConfig = "tokenizer_config.json";
constexpr const char* kMap = "special_tokens_map.json";
constexpr const char* kAdded = "added_tokens.json";
constexpr const char* kModelConfig = "config.json";

// Returns the object in a file, or an empty object if there is no such file.
Result<json> object_in(const ReadFile& read, const char* name, const std::string& where) {
  const std::string text = FERRY_TRY(read(name, kMaxFile));
  if (text.empty()) return json::object();
  json value = FERRY_TRY(parse_json(text, where));
  if (!value.is_object()) return bad_input(where + ": not an object");
  return value;
}

// A token is a text, or an object with its text and flags. `special` is the default of the flag.
Result<TokenSpec> read_token(const json& value, bool special, const std::string& where) {
  TokenSpec token;
  token.special = special;
  if (value.is_string()) {
    token.content = value.get<std::string>();
  } else {
    StepFields fields = FERRY_TRY(StepFields::of(value, where));
    fields.find("__type");
    token.content = FERRY_TRY(fields.text("content"));
    token.special = FERRY_TRY(fields.flag("special", special));
    token.normalized = FERRY_TRY(fields.flag("normalized", !token.special));
    token.single_word = FERRY_TRY(fields.flag("single_word", false));
    token.lstrip = FERRY_TRY(fields.flag("lstrip", false));
    token.rstrip = FERRY_TRY(fields.flag("rstrip", false));
    FERRY_RETURN_IF_ERROR(fields.finish());
  }
  if (token.content.empty()) return bad_input(where + ": an empty token");
  if (token.content.size() > kMaxStepText) return bad_input(where + ": the token is too long");
  return token;
}

Status read_named(const json& file, const std::string& where, TokenizerSettings& settings) {
  for (const std::string_view name : TokenizerSettings::kNames) {
    const auto value = file.find(std::string(name));
    if (value == file.end()) continue;
    std::optional<TokenSpec>& token = settings.named[std::string(name)];
    token.reset();
    if (value->is_null()) continue;
    token = FERRY_TRY(read_token(*value, true, fmt::format("{}: {}", where, name)));
    token->special = true;
  }
  return {};
}

Status read_extra(const json& file, const std::string& where, TokenizerSettings& settings) {
  for (const char* key : {"additional_special_tokens", "extra_special_tokens"}) {
    const auto list = file.find(key);
    // In an object, the tokens are those that processors put into prompts.
    if (list == file.end() || list->is_null() || list->is_object()) continue;
    if (!list->is_array()) return bad_input(fmt::format("{}: {} is not a list", where, key));
    for (const json& value : *list) {
      const TokenSpec token = FERRY_TRY(read_token(value, true, fmt::format("{}: {}", where, key)));
      settings.extra.push_back(token.content);
    }
  }
  return {};
}

// The format is {"id": {token}, ...}.
Status read_decoder(const json& decoder, const std::string& where, TokenizerSettings& settings) {
  if (!decoder.is_object()) return bad_input(where + ": not an object");
  for (const auto& [key, value] : decoder.items()) {
    int64_t id = -1;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
    if (error != std::errc() || end != key.data() + key.size() || id < 0 || id > kMaxTokenId) {
      return bad_input(fmt::format("{}: {} is no id", where, quoted(key, 60)));
    }
    TokenSpec token = FERRY_TRY(read_token(value, false, fmt::format("{}: {}", where, id)));
    if (!settings.added.emplace(id, std::move(token)).second) {  // "1" and "01" are one id
      return bad_input(fmt::format("{}: the id {} is there twice", where, id));
    }
  }
  return {};
}

// The format is {"token": id, ...}. Tokens that are also named or extra tokens are special.
Status read_added_tokens(const json& file, const std::string& where, TokenizerSettings& settings) {
  for (const auto& [content, id] : file.items()) {
    if (!id.is_number_unsigned() || id.get<uint64_t>() > static_cast<uint64_t>(kMaxTokenId)) {
      return bad_input(fmt::format("{}: {} has no id", where, quoted(content, 60)));
    }
    TokenSpec token = FERRY_TRY(read_token(json(content), true, where));
    token.special = std::ranges::any_of(settings.named, [&](const auto& named) {
      return named.second && named.second->content == token.content;
    });
    token.normalized = !token.special;
    if (!settings.added.emplace(id.get<int64_t>(), std::move(token)).second) {
      return bad_input(fmt::format("{}: the id of {} is there twice", where, quoted(content, 60)));
    }
  }
  return {};
}

Result<std::optional<bool>> optional_flag(const json& file, const char* key,
                                          const std::string& where) {
  const auto value = file.find(key);
  if (value == file.end() || value->is_null()) return std::optional<bool>();
  if (!value->is_boolean())
    return bad_input(fmt::format("{}: {} is not true or false", where, key));
  return std::optional(value->get<bool>());
}

Status read_flags(const json& file, const std::string& where, TokenizerSettings& settings) {
  settings.add_bos = FERRY_TRY(optional_flag(file, "add_bos_token", where));
  settings.add_eos = FERRY_TRY(optional_flag(file, "add_eos_token", where));
  settings.add_prefix_space = FERRY_TRY(optional_flag(file, "add_prefix_space", where));
  settings.legacy = FERRY_TRY(optional_flag(file, "legacy", where));
  settings.lower_case = FERRY_TRY(optional_flag(file, "do_lower_case", where));
  settings.chinese_chars = FERRY_TRY(optional_flag(file, "tokenize_chinese_chars", where));
  settings.strip_accents = FERRY_TRY(optional_flag(file, "strip_accents", where));
  const auto ids = file.find("extra_ids");
  if (ids == file.end() || ids->is_null()) return {};
  if (!ids->is_number_unsigned() || ids->get<uint64_t>() > 1000) {
    return bad_input(where + ": extra_ids is not a number from 0 to 1000");
  }
  settings.extra_ids = ids->get<int64_t>();
  return {};
}

// Returns an empty text if the file lacks the key.
Result<std::string> text_of(const json& file, const char* key, const std::string& where) {
  const auto value = file.find(key);
  if (value == file.end() || value->is_null()) return std::string();
  if (!value->is_string()) return bad_input(fmt::format("{}: {} is not a string", where, key));
  return value->get<std::string>();
}

// A named token has the flags with which it is added.
void take_flags_of_added(TokenizerSettings& settings) {
  for (auto& [name, token] : settings.named) {
    for (const auto& [id, added] : settings.added) {
      if (!token || added.content != token->content) continue;
      token = added;
      token->special = true;
    }
  }
}

}  // namespace

Result<TokenizerSettings> TokenizerSettings::read(const std::string& directory,
                                                  const ReadFile& read) {
  const auto where = [&](const char* name) { return printable(directory + "/" + name); };
  TokenizerSettings settings;
  const json config = FERRY_TRY(object_in(read, kConfig, where(kConfig)));
  const json model = FERRY_TRY(object_in(read, kModelConfig, where(kModelConfig)));
  settings.class_name = FERRY_TRY(text_of(config, "tokenizer_class", where(kConfig)));
  const std::string of_model = FERRY_TRY(text_of(model, "tokenizer_class", where(kModelConfig)));
  if (settings.class_name.empty()) settings.class_name = of_model;
  if (settings.class_name.ends_with("Fast")) {
    settings.class_name.resize(settings.class_name.size() - 4);
  }
  settings.model_type = FERRY_TRY(text_of(model, "model_type", where(kModelConfig)));
  FERRY_RETURN_IF_ERROR(read_flags(config, where(kConfig), settings));
  FERRY_RETURN_IF_ERROR(read_named(config, where(kConfig), settings));
  FERRY_RETURN_IF_ERROR(read_extra(config, where(kConfig), settings));
  const auto decoder = config.find("added_tokens_decoder");
  if (decoder != config.end()) {
    settings.added_file = kConfig;
    FERRY_RETURN_IF_ERROR(
        read_decoder(*decoder, where(kConfig) + ": added_tokens_decoder", settings));
  } else {
    settings.added_file = kAdded;
    const json map = FERRY_TRY(object_in(read, kMap, where(kMap)));
    FERRY_RETURN_IF_ERROR(read_named(map, where(kMap), settings));
    FERRY_RETURN_IF_ERROR(read_extra(map, where(kMap), settings));
    const json added = FERRY_TRY(object_in(read, kAdded, where(kAdded)));
    FERRY_RETURN_IF_ERROR(read_added_tokens(added, where(kAdded), settings));
  }
  take_flags_of_added(settings);
  return settings;
}

}  // namespace ferry::text
