// RecurrentGemma (Griffin): gated linear recurrences in two of three layers, attention with a
// window in the others, and Gemma's norms, embeddings and tied head.
// Source: transformers, models/recurrent_gemma/modeling_recurrent_gemma.py.

#include <cmath>
#include <nlohmann/json.hpp>

#include "converters/blocks/decoder.h"
#include "converters/blocks/rg_lru.h"
#include "converters/config/json_fields.h"
#include "converters/families/families.h"
#include "converters/keys/standard_keys.h"
#include "core/dtype.h"

namespace ferry::converters::families::recurrent_gemma {
namespace {

constexpr FloatRange kCapRange = {1e-3, 1e6};

// The model of transformers has no other RoPE than the default one.
Status check_rope_type(const JsonFields& fields) {
  for (const std::string_view key : {"rope_parameters", "rope_scaling"}) {
    if (!fields.states(key) || fields.find(key) == nullptr) continue;
    const auto inside = FERRY_TRY(fields.object(key));
    for (const std::string_view name : {"rope_type", "type"}) {
      const auto type = FERRY_TRY(inside->text(name));
      if (!type || *type == "default") continue;
      return inside->error(ErrorCode::kUnsupported, name, "is not default");
    }
  }
  return {};
}

Status read(const JsonFields& fields, ModelConfig& config) {
  FERRY_RETURN_IF_ERROR(check_rope_type(fields));
  // The reference keeps this number in bf16.
  const auto multiplier = static_cast<float>(std::sqrt(static_cast<double>(config.hidden_size)));
  config.scalars.embedding = static_cast<double>(bf16_to_f32(f32_to_bf16(multiplier)));
  config.scalars.logit_softcap = FERRY_TRY(fields.number("logits_soft_cap", kCapRange));
  if (!config.scalars.logit_softcap) return fields.bad("logits_soft_cap", "is missing");
  if (fields.find("sliding_window") == nullptr) return fields.bad("sliding_window", "is null");
  // An MLP has half the width that the config states.
  if (config.intermediate_size < 2) return fields.bad("intermediate_size", "is below 2");
  config.intermediate_size /= 2;
  config.mlp_bias = true;
  int64_t& width = config.numbers[kLruWidth];
  if (width == 0) width = config.hidden_size;
  if (width % config.num_heads != 0) {
    return fields.bad("lru_width", "is not a multiple of the number of heads");
  }
  config.numbers[kLruKernel] = FERRY_TRY(fields.required("conv1d_width", kConvRange));
  return {};
}

// Block types are repeated for all layers. Any name but "recurrent" means attention.
Result<std::vector<LayerType>> layers(const JsonFields& fields, const ModelConfig& config) {
  constexpr std::string_view kKey = "block_types";
  constexpr size_t kRepetitions = 100;
  const nlohmann::json* stated = fields.find(kKey);
  if (stated == nullptr || !stated->is_array() || stated->empty()) {
    return fields.bad(kKey, "is not a list of names");
  }
  const auto count = static_cast<size_t>(config.num_layers);
  if (stated->size() * kRepetitions < count) return fields.bad(kKey, "has too few names");
  std::vector<LayerType> types;
  for (size_t layer = 0; layer < count; ++layer) {
    const nlohmann::json& name = (*stated)[layer % stated->size()];
    if (name != "recurrent" && name != "attention") {
      return fields.error(ErrorCode::kUnsupported, kKey,
                          "has another name than recurrent, attention");
    }
    types.push_back(name == "recurrent" ? LayerType::kMamba : LayerType::kSlidingAttention);
  }
  return types;
}

std::vector<KeyRule> rules(const ModelConfig& config, const std::string& prefix) {
  const std::string layer = prefix + "layers.{i}.", block = layer + "temporal_block.";
  return concat(
      {rename_rules(prefix, {{"embed_tokens.weight", "tok_embeddings.weight"}}),
       shifted_norm_rules(
           prefix, {{"layers.{i}.temporal_pre_norm.weight", "layers.{i}.attention_norm.weight"},
                    {"layers.{i}.channel_pre_norm.weight", "layers.{i}.ffn_norm.weight"},
                    {"final_norm.weight", "norm.weight"}}),
       parameter_rules(block, config.attention_bias,
                       {{"q_proj", "layers.{i}.attention.wq"},
                        {"k_proj", "layers.{i}.attention.wk"},
                        {"v_proj", "layers.{i}.attention.wv"}}),
       parameter_rules(block, /*bias=*/true, {{"o_proj", "layers.{i}.attention.wo"}}),
       rg_lru_rules(block),
       parameter_rules(layer, /*bias=*/true,
                       {{"mlp_block.gate_proj", "layers.{i}.feed_forward.w1"},
                        {"mlp_block.up_proj", "layers.{i}.feed_forward.w3"},
                        {"mlp_block.down_proj", "layers.{i}.feed_forward.w2"}})});
}

Result<Methods> build(const ModelConfig& config, const BuildOptions& options) {
  return build_mixed_decoder(config, options,
                             {.qkv_bias = config.attention_bias, .output_bias = true}, rg_lru);
}

}  // namespace

const FamilySpec kFamily = {
    .types = {{.name = "recurrent_gemma",
               // The model has no longest context; that of its training is the default here.
               .defaults = R"({"vocab_size": 256000, "hidden_size": 2560,
                               "intermediate_size": 7680, "num_hidden_layers": 26,
                               "num_attention_heads": 10, "sliding_window": 2048,
                               "conv1d_width": 4, "logits_soft_cap": 30.0,
                               "rms_norm_eps": 1e-6, "hidden_act": "gelu_pytorch_tanh",
                               "block_types": ["recurrent", "recurrent", "attention"],
                               "partial_rotary_factor": 0.5, "max_position_embeddings": 8192,
                               "tie_word_embeddings": true})",
               .names = {{"hidden_act", {"hidden_activation"}},
                         {"sliding_window", {"attention_window_size", "sliding_window"}}},
               .unread = {"max_position_embeddings", "mlp_bias"},
               .sizes = {kLruWidth},
               .partial_rope = true,
               .window = WindowRule::kAll,
               .attention_bias = true,
               .mamba = true,
               .layers = layers,
               .read = read}},
    .components = {{.rules = rules, .build = build}}};

}  // namespace ferry::converters::families::recurrent_gemma
