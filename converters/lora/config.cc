#include "converters/lora/lora.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "converters/config/json_fields.h"
#include "core/json.h"
#include "core/text.h"

namespace ferry::converters {
namespace {

constexpr IntRange kRanks = {1, 1 << 20};
constexpr FloatRange kAlphas = {-1e9, 1e9};

// Keys about the training of the adapter and about its modules, which its tensors show too.
constexpr std::string_view kInert[] = {
    "auto_mapping",   "base_model_name_or_path", "corda_config",    "ensure_weight_tying",
    "eva_config",     "fan_in_fan_out",          "exclude_modules", "inference_mode",
    "layers_pattern", "layers_to_transform",     "loftq_config",    "lora_dropout",
    "megatron_core",  "parent_library",          "peft_version",    "qalora_group_size",
    "revision",       "runtime_config",          "task_type"};

bool is_inert(std::string_view key) { return std::ranges::count(kInert, key) > 0; }

// Whether a value says nothing: null, false, an empty list or object.
bool says_nothing(const nlohmann::json& value) {
  return value.is_null() || value == false || (value.is_structured() && value.empty());
}

// Whether a pattern is a plain end of a module's name. peft takes regular expressions, in which a
// dot is any character.
bool is_plain(std::string_view pattern) {
  return !pattern.empty() && std::ranges::all_of(pattern, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '.';
  });
}

Result<std::optional<double>> read_alpha(const JsonFields& fields, const std::string& key) {
  return fields.number(key, kAlphas);
}
Result<std::optional<double>> read_rank(const JsonFields& fields, const std::string& key) {
  const auto rank = FERRY_TRY(fields.integer(key, kRanks));
  return rank ? std::optional(static_cast<double>(*rank)) : std::nullopt;
}

// Takes the patterns in the order of the file, because the first that matches counts.
Status read_pattern(const JsonFields& fields, const nlohmann::ordered_json& in_order,
                    const std::string& key,
                    Result<std::optional<double>> (*read)(const JsonFields&, const std::string&),
                    const std::string& name, LoraPattern& out) {
  const auto object = FERRY_TRY(fields.object(key));
  if (!object) return {};
  for (const auto& [pattern, value] : in_order.at(key).items()) {
    const auto number = FERRY_TRY(read(*object, pattern));
    if (!number) continue;
    const std::string where = fmt::format("{}: '{}'", name, key);
    out.emplace_back(FERRY_TRY(ModulePattern::compile(pattern, where)), *number);
  }
  return {};
}

// Refuses null for numbers that peft divides, or divides by.
Status refuse_null(const JsonFields& fields, const nlohmann::json& document) {
  for (const char* key : {"r", "lora_alpha"}) {
    const auto found = document.find(key);
    if (found != document.end() && found->is_null()) return fields.bad(key, "is null");
  }
  return {};
}

// A list has ends of module names. A text is a regular expression for a whole name: without special
// characters it names a module, with them it is not evaluated.
Status read_targets(const JsonFields& fields, LoraConfig& config) {
  const nlohmann::json* targets = fields.find("target_modules");
  if (targets == nullptr) return {};
  if (targets->is_string()) {
    const auto& text = targets->get_ref<const std::string&>();
    if (is_plain(text)) config.target_name = text;  // "all-linear" is not plain
    return {};
  }
  if (!targets->is_array()) return fields.bad("target_modules", "is neither a list nor a text");
  config.target_ends.emplace();
  for (const nlohmann::json& target : *targets) {
    if (!target.is_string()) return fields.bad("target_modules", "is not a list of names");
    config.target_ends->push_back(target.get<std::string>());
  }
  return {};
}

Status refuse_others(const nlohmann::json& document, const KeyLog& log, const std::string& name) {
  for (const auto& [key, value] : document.items()) {
    if (log.contains(key) || is_inert(key) || says_nothing(value)) continue;
    return fail(ErrorCode::kUnsupported,
                fmt::format("{}: {} is {}: it cannot be merged", name, quoted(key, 40),
                            printable(value.dump().substr(0, 60))));
  }
  return {};
}

// pissa, olora, corda and loftq take a part out of the weights of the base.
Status check_initialisation(const JsonFields& fields) {
  const nlohmann::json* value = fields.find("init_lora_weights");
  if (value == nullptr || value->is_boolean()) return {};
  for (const char* known : {"gaussian", "eva", "orthogonal"}) {
    if (*value == known) return {};
  }
  return fields.error(ErrorCode::kUnsupported, "init_lora_weights",
                      fmt::format("is {}: the weights of the base would be changed first",
                                  printable(value->dump().substr(0, 60))));
}

bool is_end_of(std::string_view end, std::string_view module) {
  if (!module.ends_with(end)) return false;
  const size_t before = module.size() - end.size();
  return before == 0 || module[before - 1] == '.';
}

// Returns the number of the first pattern that matches, else `otherwise`.
Result<double> find(const LoraPattern& patterns, std::string_view module, double otherwise) {
  for (const auto& [pattern, number] : patterns) {
    if (FERRY_TRY(pattern.ends(module))) return number;
  }
  return otherwise;
}

}  // namespace

bool LoraConfig::has_target(std::string_view module) const {
  if (target_name) return module == *target_name;
  return !target_ends || std::ranges::any_of(*target_ends, [&](const std::string& end) {
    return is_end_of(end, module);
  });
}

Result<LoraNumbers> LoraConfig::numbers_of(std::string_view module) const {
  const double own_rank = FERRY_TRY(find(ranks, module, static_cast<double>(rank)));
  const double own_alpha = FERRY_TRY(find(alphas, module, alpha));
  return LoraNumbers{static_cast<int64_t>(own_rank),
                     own_alpha / (rank_stabilised ? std::sqrt(own_rank) : own_rank)};
}

Result<LoraConfig> parse_lora_config(const std::string& json, const std::string& name) {
  const nlohmann::json document = FERRY_TRY(parse_json(json, name));
  if (!document.is_object()) return bad_input(name + ": not a JSON object");
  KeyLog log;
  JsonFields fields(document, name, "");
  fields.record_in(log);
  LoraConfig config = {.name = name, .tensors = name};
  const std::string type = FERRY_TRY(fields.text("peft_type")).value_or("");
  if (type != "LORA") {
    return fields.error(ErrorCode::kUnsupported, "peft_type",
                        fmt::format("is {}; supported is LORA", quoted(type, 40)));
  }
  const std::string bias = FERRY_TRY(fields.text("bias")).value_or("none");
  if (bias != "none") {
    return fields.error(ErrorCode::kUnsupported, "bias",
                        fmt::format("is {}; supported is none", quoted(bias, 40)));
  }
  FERRY_RETURN_IF_ERROR(check_initialisation(fields));
  FERRY_RETURN_IF_ERROR(refuse_null(fields, document));
  FERRY_RETURN_IF_ERROR(read_targets(fields, config));
  config.rank = FERRY_TRY(fields.integer_or("r", kRanks, config.rank));
  config.alpha = FERRY_TRY(fields.number_or("lora_alpha", kAlphas, config.alpha));
  config.rank_stabilised = FERRY_TRY(fields.flag_or("use_rslora", false));
  config.has_magnitudes = FERRY_TRY(fields.flag_or("use_dora", false));
  const auto in_order = nlohmann::ordered_json::parse(json, nullptr, /*allow_exceptions=*/false);
  FERRY_RETURN_IF_ERROR(
      read_pattern(fields, in_order, "rank_pattern", read_rank, name, config.ranks));
  FERRY_RETURN_IF_ERROR(
      read_pattern(fields, in_order, "alpha_pattern", read_alpha, name, config.alphas));
  if (const nlohmann::json* saved = fields.find("modules_to_save")) {
    if (!saved->is_array()) return fields.bad("modules_to_save", "is not a list");
    for (const nlohmann::json& module : *saved) {
      if (!module.is_string()) return fields.bad("modules_to_save", "is not a list of names");
      config.saved_modules.push_back(module.get<std::string>());
      if (is_plain(config.saved_modules.back())) continue;
      return fields.bad("modules_to_save", fmt::format("names {}, which is no module",
                                                       quoted(config.saved_modules.back(), 60)));
    }
  }
  FERRY_RETURN_IF_ERROR(refuse_others(document, log, name));
  return config;
}

}  // namespace ferry::converters
