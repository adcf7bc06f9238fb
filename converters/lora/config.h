// adapter_config.json of peft: how a LoRA adapter is scaled and merged.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/result.h"

namespace ferry::converters {

// Numbers of modules that differ from those of the others: the end of a module's name, at a dot,
// and the number.
using LoraPattern = std::vector<std::pair<std::string, double>>;

struct LoraConfig {
  std::string name;          // what messages about it begin with
  std::string tensors = {};  // the same of messages about the adapter's tensors
  int64_t rank = 8;
  double alpha = 8;
  bool rank_stabilised = false;  // the scale is alpha / sqrt(rank), not alpha / rank
  LoraPattern ranks = {}, alphas = {};
  std::vector<std::string> saved_modules = {};  // whose weights the adapter has itself

  std::optional<std::vector<std::string>> target_ends = {};  // ends of the names of its modules
  std::optional<std::string> target_name = {};               // the name of its only module

  // Whether target_modules names the module; true where it does not say, or by a pattern.
  bool has_target(std::string_view module) const;
  int64_t rank_of(std::string_view module) const;
  double scale_of(std::string_view module) const;
};

// kUnsupported, with the name of the field, for what cannot be merged or is not known: DoRA, other
// methods than LoRA, biases, initialisations that change the weights of the base.
Result<LoraConfig> parse_lora_config(const std::string& json, const std::string& name);

}  // namespace ferry::converters
