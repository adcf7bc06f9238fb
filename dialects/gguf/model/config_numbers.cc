// The numbers of the metadata that are numbers of a Hugging Face config.
#include "dialects/gguf/model/reading.h"

namespace ferry::converters {
namespace {

template <auto Member>
double value_of(const ModelConfig& config) {
  return static_cast<double>(config.*Member);
}
template <auto Member>
double linear_value_of(const ModelConfig& config) {
  return static_cast<double>(config.linear.*Member);
}

constexpr GgufNumber kModelNumbers[] = {
    {.gguf = "embedding_length", .hf = "hidden_size", .of = value_of<&ModelConfig::hidden_size>},
    {.gguf = "feed_forward_length",
     .hf = "intermediate_size",
     .of = value_of<&ModelConfig::intermediate_size>,
     .or_of = [](const ModelConfig& c) { return static_cast<double>(c.moe.expert_size); },
     .unless = "expert_feed_forward_length",  // all layers may have experts
     .by_kind = true},
    {.gguf = "attention.head_count",
     .hf = "num_attention_heads",
     .of = value_of<&ModelConfig::num_heads>},
    {.gguf = "attention.head_count_kv",
     .hf = "num_key_value_heads",
     .required = false,
     .of = value_of<&ModelConfig::num_kv_heads>,
     .latent = false,
     .by_kind = true},
    {.gguf = "attention.key_length",
     .hf = "head_dim",
     .required = false,
     .of = value_of<&ModelConfig::head_dim>,
     .latent = false,
     .by_kind = true},
    {.gguf = "rope.freq_base",
     .hf = "rope_theta",
     .real = true,
     .required = false,
     .of = [](const ModelConfig& c) { return c.rope.theta; }},
    // The number of positions is not a property of the tensors.
    {.gguf = "context_length", .hf = "max_position_embeddings"},
    {.gguf = "attention.sliding_window", .hf = "sliding_window", .required = false},
    {.gguf = "expert_count", .hf = "num_experts", .required = false},
    {.gguf = "expert_used_count", .hf = "num_experts_per_tok", .required = false},
    {.gguf = "expert_feed_forward_length", .hf = "moe_intermediate_size", .required = false},
    {.gguf = "expert_shared_feed_forward_length",
     .hf = "shared_expert_intermediate_size",
     .required = false},
};

constexpr GgufNumber kRmsEpsilon[] = {{.gguf = "attention.layer_norm_rms_epsilon",
                                       .hf = "rms_norm_eps",
                                       .real = true,
                                       .of = value_of<&ModelConfig::rms_norm_eps>}};
constexpr GgufNumber kLayerNormEpsilon[] = {{.gguf = "attention.layer_norm_epsilon",
                                             .hf = "rms_norm_eps",
                                             .real = true,
                                             .of = value_of<&ModelConfig::rms_norm_eps>}};
constexpr GgufNumber kLogitScale[] = {
    {.gguf = "logit_scale", .hf = "logit_scale", .real = true, .of = [](const ModelConfig& c) {
       return c.scalars.logits;
     }}};

constexpr GgufNumber kClamp[] = {
    {.gguf = "attention.clamp_kqv",
     .hf = "clip_qkv",
     .real = true,
     .required = false,
     .zero_is_none = true,
     .of = [](const ModelConfig& c) { return c.scalars.qkv_clip.value_or(0); }}};

constexpr GgufNumber kLinearNumbers[] = {
    {.gguf = "ssm.conv_kernel",
     .hf = "linear_conv_kernel_dim",
     .of = linear_value_of<&LinearAttentionConfig::conv_kernel>},
    {.gguf = "ssm.state_size",
     .hf = "linear_key_head_dim",
     .of = linear_value_of<&LinearAttentionConfig::key_dim>},
    {.gguf = "ssm.group_count",
     .hf = "linear_num_key_heads",
     .of = linear_value_of<&LinearAttentionConfig::key_heads>},
    {.gguf = "ssm.time_step_rank",
     .hf = "linear_num_value_heads",
     .of = linear_value_of<&LinearAttentionConfig::value_heads>},
};

constexpr GgufNumber kMultipliers[] = {
    {.gguf = "embedding_scale",
     .hf = "embedding_multiplier",
     .real = true,
     .of = [](const ModelConfig& c) { return c.scalars.embedding; }},
    {.gguf = "residual_scale",
     .hf = "residual_multiplier",
     .real = true,
     .of = [](const ModelConfig& c) { return c.scalars.residual; }},
    {.gguf = "attention.scale",
     .hf = "attention_multiplier",
     .real = true,
     .of = [](const ModelConfig& c) { return c.scalars.attention.value_or(0); }},
    {.gguf = "logit_scale",
     .hf = "logits_scaling",
     .real = true,
     .of = [](const ModelConfig& c) { return 1 / c.scalars.logits; }},
};

constexpr GgufNumber kSoftcaps[] = {
    {.gguf = "attn_logit_softcapping",
     .hf = "attn_logit_softcapping",
     .real = true,
     .required = false,
     .zero_is_none = true,
     .of = [](const ModelConfig& c) { return c.scalars.attention_softcap.value_or(0); }},
    {.gguf = "final_logit_softcapping",
     .hf = "final_logit_softcapping",
     .real = true,
     .required = false,
     .zero_is_none = true,
     .of = [](const ModelConfig& c) { return c.scalars.logit_softcap.value_or(0); }},
};

}  // namespace

std::span<const GgufNumber> gguf_linear_numbers() { return kLinearNumbers; }

std::vector<std::span<const GgufNumber>> gguf_number_tables(const GgufArchitecture& architecture) {
  std::vector<std::span<const GgufNumber>> tables = {kModelNumbers};
  tables.emplace_back(architecture.layer_norm ? kLayerNormEpsilon : kRmsEpsilon);
  if (architecture.multipliers) tables.emplace_back(kMultipliers);
  if (architecture.logit_scale) tables.emplace_back(kLogitScale);
  if (architecture.has_key(GgufKey::kClamp)) tables.emplace_back(kClamp);
  if (architecture.gemma) tables.emplace_back(kSoftcaps);
  if (architecture.linear_attention) tables.emplace_back(kLinearNumbers);
  return tables;
}

}  // namespace ferry::converters
