// The keys of a GGUF file of a model, but those of its tokenizer: names, types, values and order as
// llama.cpp's converter writes them. Source: conversion/*.py of llama.cpp.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <vector>

#include "converters/config/model_config.h"
#include "core/gguf_key_value.h"
#include "core/result.h"
#include "dialects/gguf/model/architecture.h"
#include "dialects/gguf/model/written_types.h"

namespace ferry::converters {

struct GgufKeysInput {
  const GgufArchitecture* architecture = nullptr;
  const ModelConfig* config = nullptr;
  std::string config_text = {};      // of config.json: the converter writes some keys only if it
                                     // states them
  std::string config_name = {};      // begins messages
  std::string generation_text = {};  // of generation_config.json, or empty
  std::string name = {};             // general.name; empty: none
  std::string size_label = {};       // gguf_size_label()
  GgufFileType type = GgufFileType::kF32;
  bool has_mxfp4 = false;  // some tensors keep these blocks
};

// From `general.architecture` to `general.quantization_version`. kBadInput for a config that is not
// JSON.
Result<std::vector<GgufKeyValue>> gguf_model_keys(const GgufKeysInput& input);

// The m for which (0.1 ln(factor) + 1) / (0.1 m ln(factor) + 1) is the attention factor of yarn.
double gguf_yarn_multiplier(const RopeConfig& rope);

// mscale_all_dim of yarn; 0 where the config has none.
double gguf_mscale_all_dim(const GgufKeysInput& input);

// Appends what generation_config.json says; `text` may be empty. kBadInput where it is not JSON.
Status add_gguf_sampling(const std::string& text, std::vector<GgufKeyValue>& keys);

// "1.2B"; "8x7B" where some are stacks of experts.
std::string gguf_size_label(std::span<const GgufNamedShape> tensors);

// Why GGUF runtimes would not compute what the model does, as kUnsupported that names the field of
// the config. Readers of GGUF know some numbers of an architecture by heart, and no key changes
// them.
Status check_gguf_limits(const GgufKeysInput& input);
// What they compute otherwise only beyond some length, a line for each.
std::vector<std::string> gguf_limit_notes(const GgufKeysInput& input);

}  // namespace ferry::converters
