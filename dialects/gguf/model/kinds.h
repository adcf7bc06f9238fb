// Which of several architectures with one name a file is of, and which of several with one model
// type a model is written as.
#pragma once

#include "converters/config/model_config.h"
#include "dialects/gguf/model/reading.h"

namespace ferry::converters::gguf_kinds {

bool has_sigmoid_experts(const GgufReading& file);
bool has_experts(const GgufReading& file);
bool has_shared_expert(const GgufReading& file);
bool has_windows(const GgufReading& file);
bool turns_nothing(const GgufReading& file);
bool has_growing_queries(const GgufReading& file);

bool has_mamba_layers(const ModelConfig& config);
// Of models without such layers.
bool has_attention_and_experts(const ModelConfig& config);
bool has_attention_and_mlps(const ModelConfig& config);

}  // namespace ferry::converters::gguf_kinds
