// LoRA and DoRA adapters of peft: parse_lora_config() reads how an adapter is scaled and merged;
// merge_lora() merges it into weights, W + scale * B A, which DoRA multiplies by gains
// (magnitudes.h), as merge_and_unload() of peft does in f32.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "converters/keys/keyed_tensors.h"
#include "converters/lora/module_pattern.h"
#include "core/derived_source.h"
#include "core/result.h"

namespace ferry::converters {

// Numbers of modules that differ from those of other modules; the first pattern that matches
// counts.
using LoraPattern = std::vector<std::pair<ModulePattern, double>>;

struct LoraNumbers {
  int64_t rank = 0;
  double scale = 0;
};

struct LoraConfig {
  std::string name;          // name that begins messages about the config
  std::string tensors = {};  // name that begins messages about the adapter's tensors
  std::string folder = {};   // what precedes the names of its tensors in the source, and a dot
  int64_t rank = 8;
  double alpha = 8;
  bool rank_stabilised = false;  // the scale is alpha / sqrt(rank), not alpha / rank
  bool has_magnitudes = false;   // DoRA: every module has a magnitude for each output
  LoraPattern ranks = {}, alphas = {};
  std::vector<std::string> saved_modules = {};  // modules whose weights the adapter holds itself

  std::optional<std::vector<std::string>> target_ends =
      {};                                       // ends of the names of the adapter's modules
  std::optional<std::string> target_name = {};  // name of the adapter's only module

  // Whether target_modules names the module; true where target_modules is absent or a pattern.
  bool has_target(std::string_view module) const;
  Result<LoraNumbers> numbers_of(std::string_view module) const;
};

// Returns kUnsupported, with the name of the field, for a config that cannot be merged or is not
// known: other methods than LoRA, biases, initialisations that change the weights of the base.
Result<LoraConfig> parse_lora_config(const std::string& json, const std::string& name);

// The tensors of the adapter are the entries of `source` from `first` on. Recipes of the weights
// that the adapter changes become those of derived tensors, which have the dtype of the base unless
// another dtype is asked for. kBadInput for a tensor of the adapter that belongs to no weight, and
// for shapes that do not fit; nothing of the adapter is left out. `model_config` is the text of
// config.json. Returns a line for the user.
Result<std::string> merge_lora(DerivedSource& source, size_t first, const LoraConfig& config,
                               const std::string& model_config, KeyedTensors& tensors);

}  // namespace ferry::converters
