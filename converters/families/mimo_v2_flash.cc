// MiMo-V2-Flash: experts of DeepSeek V3 without a shared one; in layers with a window twice as many
// heads of keys and values, with attention sinks; values of another size than keys.
// Source: transformers, models/mimo_v2_flash/modeling_mimo_v2_flash.py.

#include <fmt/format.h>

#include "converters/blocks/attention.h"
#include "converters/blocks/decoder.h"
#include "converters/config/json_fields.h"
#include "converters/config/type_parts.h"
#include "converters/families/families.h"
#include "converters/families/gguf_tables.h"
#include "converters/keys/expert_keys.h"
#include "converters/keys/standard_keys.h"

namespace ferry::converters::families::mimo_v2_flash {
namespace {

using namespace gguf_tables;
using enum GgufKey;

constexpr GgufName kSinksGguf[] = {
    {"blk.{i}.attn_sinks.weight", "model.layers.{i}.self_attn.attention_sink_bias"},
    {"blk.{i}.attn_sinks.weight", "model.layers.{i}.self_attn.sinks"},
};

constexpr int64_t kFullEvery = 6;
constexpr double kSumEpsilon = 1e-20;  // a constant of the reference
// A member of ModelConfig::numbers: the size of the values of a head.
constexpr const char* kValueSize = "v_head_dim";
constexpr FloatRange kValueRange = {-1e6, 1e6};

Result<std::vector<LayerType>> layers(const JsonFields&, const ModelConfig& config) {
  std::vector<LayerType> types;
  for (int64_t layer = 0; layer < config.num_layers; ++layer) {
    const bool full = layer == 0 || (layer + 1) % kFullEvery == 0;
    types.push_back(full ? LayerType::kFullAttention : LayerType::kSlidingAttention);
  }
  return types;
}

Status read_heads(const JsonFields& fields, ModelConfig& config) {
  config.full_heads = HeadSizes{config.num_kv_heads, config.head_dim};
  config.num_kv_heads *= 2;
  const int64_t size = FERRY_TRY(fields.required(kValueSize, kHeadDimRange));
  config.numbers[kValueSize] = size;
  if (size <= config.head_dim) return {};
  return fields.error(
      ErrorCode::kUnsupported, kValueSize,
      fmt::format("is {}, more than head_dim {}: not supported", size, config.head_dim));
}

Status read(const JsonFields& fields, ModelConfig& config) {
  FERRY_RETURN_IF_ERROR(read_heads(fields, config));
  config.numbers[kAttentionSinks] = kSlidingSinks;
  config.scalars.values = FERRY_TRY(fields.number_or("attention_value_scale", kValueRange, 1.0));
  MoeConfig& moe = config.moe;
  if (moe.experts == 0) return {};
  moe.scores = MoeConfig::Scores::kSigmoid;
  moe.choice_bias = true;
  moe.norm_epsilon = kSumEpsilon;
  moe.scale = FERRY_TRY(fields.number_or("routed_scaling_factor", kScaleRange, 1.0));
  return read_expert_groups(fields, config, 2);
}

// sliding_window_size counts the tokens before the query.
Status read_layers(const JsonFields& fields, ModelConfig& config) {
  const auto before = FERRY_TRY(fields.integer("sliding_window_size", {0, kPositionRange.max - 1}));
  if (before && config.sliding_window) config.sliding_window = *before + 1;
  return {};
}

std::vector<KeyRule> rules(const ModelConfig& config, const std::string& prefix) {
  const std::string layer = prefix + "layers.{i}.";
  std::vector<KeyRule> all =
      concat({standard_matrix_rules(prefix), standard_norm_rules(prefix),
              bias_rules(prefix, config.attention_bias, /*output=*/false, /*mlp=*/false),
              rename_rules(layer, {{"self_attn.attention_sink_bias", "layers.{i}.attention.sinks"},
                                   {"self_attn.sinks", "layers.{i}.attention.sinks"}})});
  if (config.moe.experts == 0) return all;
  return concat({all, expert_rules(prefix, config),
                 rename_rules(layer, {{"mlp.gate.e_score_correction_bias",
                                       "layers.{i}.feed_forward.gate.choice_bias"}})});
}

// Keys and values have heads of one size in the cache: zeros follow the values.
ValueId narrow_values(GraphBuilder& b, const DecoderContext& c, ValueId x, int64_t layer) {
  const ModelConfig& g = c.config;
  const std::string prefix = layer_name(layer, "attention");
  const HeadSizes sizes = g.heads_of(layer);
  const int64_t value = g.number(kValueSize), hidden = g.hidden_size;
  const auto projected = [&](const char* name, int64_t count, int64_t size) {
    const ValueId rows = projection(b, x, prefix + name, hidden, count * size, g.attention_bias);
    return b.view(rows, {batch(), c.tokens, heads(count), head_dim(size)});
  };
  const AttentionKind& kind = c.kind_of(layer);
  const ValueId q = rope(b, kind.query_rope, projected(".wq", g.num_heads, sizes.dim));
  const ValueId k = rope(b, kind.rope, projected(".wk", sizes.kv_heads, sizes.dim));
  ValueId v = b.mul(projected(".wv", sizes.kv_heads, value), g.scalars.values);
  if (value < sizes.dim) {
    const Dims rest = {batch(), c.tokens, heads(sizes.kv_heads), head_dim(sizes.dim - value)};
    v = b.cat({v, b.expand(b.view(b.scalar(0.0F), {1, 1, 1, 1}), rest)}, 3);
  }
  ValueId out = attend(b, c, layer, q, k, v);
  if (value < sizes.dim) out = b.slice(out, 3, 0, value);
  const int64_t width = g.num_heads * value;
  return projection(b, b.view(out, {batch(), c.tokens, features(width)}), prefix + ".wo", width,
                    hidden, /*bias=*/false);
}

Result<Methods> build(const ModelConfig& config, const BuildOptions& options) {
  return build_decoder(config, options,
                       [](GraphBuilder& b, const DecoderContext& c, ValueId x, int64_t layer) {
                         return narrow_values(b, c, x, layer);
                       });
}

}  // namespace

const FamilySpec kFamily = {
    .types = {{.name = "mimo_v2_flash",
               .defaults = R"({"vocab_size": 152576, "hidden_size": 4096,
                               "intermediate_size": 16384, "num_hidden_layers": 48,
                               "num_attention_heads": 64, "num_key_value_heads": 4,
                               "head_dim": 192, "v_head_dim": 128,
                               "max_position_embeddings": 131072, "rms_norm_eps": 1e-5,
                               "moe_intermediate_size": 2048, "num_experts": 256,
                               "num_experts_per_tok": 8, "norm_topk_prob": true,
                               "n_group": 1, "topk_group": 1, "first_k_dense_replace": 1,
                               "attention_value_scale": 0.707, "sliding_window": 129,
                               "partial_rotary_factor": 0.334,
                               "rope_parameters": {
                                 "full_attention": {"rope_type": "default",
                                                    "rope_theta": 5000000.0},
                                 "sliding_attention": {"rope_type": "default",
                                                       "rope_theta": 10000.0}}})",
               .names = {{"num_experts", {"num_local_experts", "n_routed_experts"}},
                         {"first_k_dense_replace", {}},
                         {"partial_rotary_factor", {}}},
               .rope = RopeRule::kNested,
               .partial_rope = true,
               .window = WindowRule::kAll,
               .lists_layers = true,
               .attention_bias = true,
               .layers = layers,
               .experts = ExpertRule::kTyped,
               .read = read,
               .read_layers = read_layers}},
    .components = {{.rules = rules, .build = build}},
    .dropped = {{"model.mtp.*", "multi-token prediction: not part of the model's output"}},
    .gguf = {{.name = "mimo2",
              .tables = {kFrame, kAttention, kValueAndOutput, kPreNorm, kMlp, kSharedExperts,
                         kExperts, kFusedExperts, kSinksGguf},
              .sliding_pattern = true,
              .partial_rotary = true,
              .normed_experts = true,
              .grouped_experts = true,
              .sigmoid_experts = true,
              .own_keys = GgufOwnKeys::kMimo,
              .keys = standard_keys(
                  {kMimoHeads, kWindow, kExpertLength, kRopeDimension, kPredictingLayers}),
              .unread = attention_biases(),
              .own_head = true,
              .lists_windows = true}}};

}  // namespace ferry::converters::families::mimo_v2_flash
