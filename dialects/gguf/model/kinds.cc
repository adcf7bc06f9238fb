#include "dialects/gguf/model/kinds.h"

#include <algorithm>

namespace ferry::converters::gguf_kinds {

// Kimi and the like; transformers 5 leaves the function out of the config of DeepSeek V3.
bool has_sigmoid_experts(const GgufReading& file) {
  constexpr int64_t kSigmoid = 2;
  const auto gating = file.integer("expert_gating_func", {0, INT32_MAX});
  if (gating && gating->value_or(0) > 0) return **gating == kSigmoid;
  return file.has("blk.{i}.exp_probs_b.bias");
}

bool has_experts(const GgufReading& file) {
  const auto experts = file.integer("expert_count", {0, INT32_MAX});
  return experts && experts->value_or(0) > 0;
}

bool has_shared_expert(const GgufReading& file) { return file.has("blk.{i}.ffn_up_shexp.weight"); }

// Olmo 3 goes by the name of Olmo 2.
bool has_windows(const GgufReading& file) {
  const auto window = file.integer("attention.sliding_window", {0, INT32_MAX});
  return window && window->value_or(0) > 0;
}

// Granite 4 without RoPE goes by the name of Granite 3.
bool turns_nothing(const GgufReading& file) {
  const auto turned = file.keys->fields.flag(file.keys->name("rope.scaling.finetuned"));
  return turned && !turned->value_or(true);
}

bool has_growing_queries(const GgufReading& file) {
  return file.states("attention.temperature_scale");
}

bool has_mamba_layers(const ModelConfig& config) {
  return std::ranges::count(config.layer_types, LayerType::kMamba) > 0;
}

bool has_attention_and_experts(const ModelConfig& config) {
  return !has_mamba_layers(config) && config.moe.experts > 0;
}

bool has_attention_and_mlps(const ModelConfig& config) {
  return !has_mamba_layers(config) && config.moe.experts == 0;
}

}  // namespace ferry::converters::gguf_kinds
