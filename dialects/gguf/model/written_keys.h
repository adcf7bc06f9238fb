// gguf_model_keys() makes the keys of a GGUF file of a model, except those of its tokenizer: names,
// types, values and order as llama.cpp's converter writes them. Source: conversion/*.py of
// llama.cpp.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
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
  // Text of config.json. The converter writes some keys only if it states them.
  std::string config_text = {};
  std::string config_name = {};      // name that begins messages
  std::string generation_text = {};  // text of generation_config.json, or empty
  std::string name = {};             // general.name; empty: none
  std::string size_label = {};       // gguf_size_label()
  GgufFileType type = GgufFileType::kF32;
  bool has_mxfp4 = false;                        // some tensors keep these blocks
  std::vector<GgufKeyValue> layer_numbers = {};  // of read_layer_numbers()
};

// Returns the keys from `general.architecture` to `general.quantization_version`. kBadInput for a
// config that is not JSON.
Result<std::vector<GgufKeyValue>> gguf_model_keys(const GgufKeysInput& input);

// Returns the m for which (0.1 ln(factor) + 1) / (0.1 m ln(factor) + 1) is the attention factor of
// yarn.
double gguf_yarn_multiplier(const RopeConfig& rope);

// Returns mscale_all_dim of yarn; 0 where the config has none.
double gguf_mscale_all_dim(const GgufKeysInput& input);

// Returns the sections of multimodal RoPE with a fourth of 0, or nothing where the config has none.
std::vector<int32_t> gguf_rope_sections(const GgufKeysInput& input);

// Returns n where the first layer with experts is the n-th one.
int64_t gguf_expert_step(const ModelConfig& config);

// Appends the keys that generation_config.json gives; `text` may be empty. kBadInput where it is
// not JSON.
Status add_gguf_sampling(const std::string& text, std::vector<GgufKeyValue>& keys);

// The other way: adds the settings of sampling that the keys of a file state to the object of a
// generation_config.json. Runtimes of GGUF draw tokens, so that `do_sample` is true where the file
// says how. kBadInput for a value of another type.
Status read_gguf_sampling(const nlohmann::json& metadata, const std::string& name,
                          nlohmann::json& generation);

// Returns "1.2B", or "8x7B" where some tensors are stacks of experts.
std::string gguf_size_label(std::span<const GgufNamedShape> tensors);

// The relative tolerance for numbers that readers compute in f32.
inline constexpr double kGgufTolerance = 1e-6;

// Returns kUnsupported, with the name of the config's field, if GGUF runtimes would not compute
// what the model computes. Readers of GGUF have some numbers of an architecture in their code, and
// no key changes them.
Status check_gguf_limits(const GgufKeysInput& input);
// The part of it that concerns single architectures (written_model_limits.cc).
Status check_gguf_model_limits(const GgufKeysInput& input);
// Those that concern RoPE, and what is noted of it (written_rope_limits.cc).
Status check_gguf_rope_limits(const GgufKeysInput& input);
std::vector<std::string> gguf_rope_notes(const GgufKeysInput& input);
// Returns the error of the above.
Failure gguf_cannot_say(const GgufKeysInput& input, std::string_view field, std::string_view why);
// Returns the window of a model whose readers apply none. The file then states a context of that
// many tokens, because outputs would differ beyond it.
std::optional<int64_t> gguf_ignored_window(const GgufKeysInput& input);
// Whether the layers with a window are those that readers assume where no key lists them.
bool gguf_has_usual_windows(const GgufKeysInput& input);
// Returns a line for each difference in what runtimes compute beyond some length.
std::vector<std::string> gguf_limit_notes(const GgufKeysInput& input);

}  // namespace ferry::converters
