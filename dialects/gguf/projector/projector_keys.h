// projector_keys() makes the keys of a projector: names, types, values and order as llama.cpp's
// converter writes them with --mmproj. Source: conversion/base.py and the classes of the kinds.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "converters/config/model_config.h"
#include "core/gguf_key_value.h"
#include "core/result.h"
#include "dialects/gguf/model/written_types.h"
#include "dialects/gguf/projector/projector.h"

namespace ferry::converters {

struct ProjectorKeysInput {
  const ProjectorKind* kind = nullptr;
  const ModelConfig* config = nullptr;
  std::string config_text = {}, config_name = {};  // config.json
  std::string generation_text = {};                // generation_config.json, or empty
  std::string preprocessor_text = {};              // preprocessor_config.json, or empty
  std::string processor_text = {};                 // processor_config.json, or empty
  std::string name = {};                           // general.name; empty: none
  std::string size_label = {};
  GgufFileType type = GgufFileType::kF32;
};

// kBadInput where the processor files state no mean and deviation of pixel values; kUnsupported,
// with the field, for a model that readers would take for another.
Result<std::vector<GgufKeyValue>> projector_keys(const ProjectorKeysInput& input);

// Returns the type of each tensor in a file of `type`, which is f32, f16, bf16 or q8_0.
std::vector<GgufElement> choose_projector_types(std::span<const GgufNamedShape> tensors,
                                                const ProjectorKind& kind, GgufFileType type);

}  // namespace ferry::converters
