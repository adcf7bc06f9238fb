// OLMo Hybrid: Gated DeltaNet between norms in most layers, and OLMo 3's attention, with norms
// behind its blocks, in the others. Its convolution is stored in three parts of rows, which are
// equal in checkpoints that transformers saves, and those of q, k and v in released ones.
// Source: transformers, models/olmo_hybrid/modeling_olmo_hybrid.py.

#include <algorithm>
#include <nlohmann/json.hpp>

#include "converters/blocks/attention.h"
#include "converters/blocks/decoder.h"
#include "converters/blocks/hybrid.h"
#include "converters/config/json_fields.h"
#include "converters/families/families.h"
#include "converters/keys/standard_keys.h"

namespace ferry::converters::families::olmo_hybrid {
namespace {

constexpr int64_t kInterval = 4;
constexpr double kInnerEps = 1e-5;  // a constant of the reference
// A member of ModelConfig::numbers: 1 where beta is in (0, 2).
constexpr const char* kDoubled = "linear_allow_neg_eigval";

Result<std::vector<LayerType>> layers(const JsonFields&, const ModelConfig& config) {
  std::vector<LayerType> types(static_cast<size_t>(config.num_layers), LayerType::kLinearAttention);
  for (size_t i = kInterval - 1; i < types.size(); i += kInterval) {
    types[i] = LayerType::kFullAttention;
  }
  if (std::ssize(types) < kInterval) types.back() = LayerType::kFullAttention;
  return types;
}

// A rope_theta of null means that no layer has RoPE.
Result<bool> has_rope(const JsonFields& fields) {
  auto object = FERRY_TRY(fields.object("rope_scaling"));
  if (!object || object->size() == 0) object = FERRY_TRY(fields.object("rope_parameters"));
  if (object && object->states("rope_theta")) return object->find("rope_theta") != nullptr;
  return !fields.states("rope_theta") || fields.find("rope_theta") != nullptr;
}

Status read_layers(const JsonFields& fields, ModelConfig& config) {
  if (!FERRY_TRY(has_rope(fields))) config.rope_layers.assign(config.rope_layers.size(), false);
  const auto count = std::ranges::count(config.layer_types, LayerType::kLinearAttention);
  if (count > 0 && count < config.num_layers) return {};
  return fields.bad("layer_types", "does not have both linear_attention and full_attention");
}

Shape convolution(const ModelConfig& config) {
  return {config.linear.conv_channels(), 1, config.linear.conv_kernel};
}

std::vector<KeyRule> delta_net_rules(const std::string& block) {
  std::vector<KeyRule> rules =
      rename_rules(block, {{"q_proj.weight", "layers.{i}.attention.in_proj_q.weight"},
                           {"k_proj.weight", "layers.{i}.attention.in_proj_k.weight"},
                           {"v_proj.weight", "layers.{i}.attention.in_proj_v.weight"},
                           {"g_proj.weight", "layers.{i}.attention.in_proj_z.weight"},
                           {"b_proj.weight", "layers.{i}.attention.in_proj_b.weight"},
                           {"a_proj.weight", "layers.{i}.attention.in_proj_a.weight"},
                           {"conv1d.weight", "layers.{i}.attention.conv1d.weight"},
                           {"dt_bias", "layers.{i}.attention.dt_bias"},
                           {"o_norm.weight", "layers.{i}.attention.norm.weight"},
                           {"o_proj.weight", "layers.{i}.attention.out_proj.weight"},
                           {"A_log", "layers.{i}.attention.A"}});
  rules.back().name = "-exp(A_log)";
  rules.back().steps = {{.kind = graph::Step::Kind::kNegExp}};
  return concat({rules, join_rules({block + "q_conv1d.weight", block + "k_conv1d.weight",
                                    block + "v_conv1d.weight"},
                                   "layers.{i}.attention.conv1d.weight", convolution)});
}

// The norm between the two blocks of a layer has one name, whether it is before or behind a block.
std::vector<KeyRule> rules(const ModelConfig& config, const std::string& prefix) {
  const std::string layer = prefix + "layers.{i}.";
  const bool bias = config.attention_bias;
  return concat(
      {standard_matrix_rules(prefix), bias_rules(prefix, bias, bias, /*mlp=*/false),
       delta_net_rules(layer + "linear_attn."),
       rename_rules(layer,
                    {{"self_attn.q_norm.weight", "layers.{i}.attention.q_norm.weight"},
                     {"self_attn.k_norm.weight", "layers.{i}.attention.k_norm.weight"},
                     {"attention_layer_norm.weight", "layers.{i}.attention_norm.weight"},
                     {"input_layernorm.weight", "layers.{i}.attention_norm.weight"},
                     {"feedforward_layer_norm.weight", "layers.{i}.post_attention_norm.weight"},
                     {"post_attention_layernorm.weight", "layers.{i}.post_attention_norm.weight"},
                     {"post_feedforward_layernorm.weight", "layers.{i}.post_ffn_norm.weight"}}),
       rename_rules(prefix, {{"norm.weight", "norm.weight"}})});
}

ValueId build_layer(GraphBuilder& b, const DecoderContext& c, ValueId x, int64_t layer) {
  const ModelConfig& config = c.config;
  const auto norm = [&](ValueId value, const char* name) {
    return rms_norm(b, value, layer_name(layer, name) + ".weight", config.rms_norm_eps);
  };
  const auto mlp = [&](ValueId value) {
    return gated_mlp(b, config, value, layer_name(layer, "feed_forward"), config.intermediate_size);
  };
  if (is_attention(config.layer_types[static_cast<size_t>(layer)])) {
    const bool bias = config.attention_bias;
    const ValueId mixed = attention(
        b, c, x, layer,
        {.qkv_bias = bias, .output_bias = bias, .qk_norm = AttentionStyle::QkNorm::kWhole});
    x = b.add(x, norm(mixed, "post_attention_norm"));
    return b.add(x, norm(mlp(x), "post_ffn_norm"));
  }
  const DeltaNetStyle style = {
      .apart = true, .doubled = config.number(kDoubled) != 0, .norm_eps = kInnerEps};
  x = b.add(x, gated_delta_net(b, c, norm(x, "attention_norm"), layer, style));
  return b.add(x, mlp(norm(x, "post_attention_norm")));
}

Result<Methods> build(const ModelConfig& config, const BuildOptions& options) {
  const auto final_norm = [&](GraphBuilder& b, ValueId x) {
    return rms_norm(b, x, "norm.weight", config.rms_norm_eps);
  };
  return build_frame(config, options, {.layer = build_layer, .final_norm = final_norm});
}

}  // namespace

const FamilySpec kFamily = {.types = {{.name = "olmo_hybrid",
                                       .defaults = R"({"vocab_size": 100352, "hidden_size": 3840,
                               "intermediate_size": 11008, "num_hidden_layers": 32,
                               "num_attention_heads": 30, "max_position_embeddings": 65536,
                               "linear_conv_kernel_dim": 4, "linear_allow_neg_eigval": true})",
                                       .flags = {{.key = kDoubled, .otherwise = true}},
                                       .lists_layers = true,
                                       .attention_bias = true,
                                       .hybrid = true,
                                       .linear_from_heads = true,
                                       .layers = layers,
                                       .read_layers = read_layers}},
                            .components = {{.rules = rules, .build = build}}};

}  // namespace ferry::converters::families::olmo_hybrid
