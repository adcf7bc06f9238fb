// Doge: Llama with norms of q and k, weights of the residuals, and a bias of scores that follows
// from the value of each key. Its keys beyond keep_window_size and its mixture of experts, in which
// tokens decide for later and earlier ones, are not built.
// Source: transformers, models/doge/modeling_doge.py.

#include <fmt/format.h>

#include <cmath>

#include "converters/blocks/attention.h"
#include "converters/blocks/decoder.h"
#include "converters/config/json_fields.h"
#include "converters/families/families.h"
#include "converters/keys/standard_keys.h"

namespace ferry::converters::families::doge {
namespace {

// A member of ModelConfig::numbers: the keys of a query beyond which the reference drops some.
constexpr const char* kKept = "keep_window_size";

// A head in the cache has one dimension more, in which every key has its bias.
Status read(const JsonFields& fields, ModelConfig& config) {
  if (FERRY_TRY(fields.flag_or("is_moe", false))) {
    return fields.error(ErrorCode::kUnsupported, "is_moe",
                        "is true: the experts of a token depend on later tokens");
  }
  config.numbers[kKept] = FERRY_TRY(fields.required(kKept, kPositionRange));
  config.scalars.attention = 1.0 / std::sqrt(static_cast<double>(config.head_dim));
  config.rope.rotary_dim = config.head_dim;
  if (config.head_dim % 2 != 0) {
    return fields.bad("head_dim", fmt::format("is {}, which is odd", config.head_dim));
  }
  ++config.head_dim;
  return {};
}

std::vector<KeyRule> rules(const ModelConfig& config, const std::string& prefix) {
  const bool bias = config.attention_bias;
  const std::string layer = prefix + "layers.{i}.";
  return concat(
      {llama_rules(config, prefix),
       parameter_rules(layer, bias, {{"self_attn.dt_proj", "layers.{i}.attention.wdt"}}),
       rename_rules(layer, {{"self_attn.A", "layers.{i}.attention.A"},
                            {"self_attn.q_norm.weight", "layers.{i}.attention.q_norm.weight"},
                            {"self_attn.k_norm.weight", "layers.{i}.attention.k_norm.weight"},
                            {"input_residual", "layers.{i}.attention.residual"},
                            {"post_attention_residual", "layers.{i}.feed_forward.residual"}})});
}

// Returns exp(A softplus(dt v)) of every key head: [1,T,kv_heads,1]. `v` is [1,T,kv_heads * dim].
ValueId biases_of_keys(GraphBuilder& b, const DecoderContext& c, ValueId v, int64_t width,
                       const std::string& prefix) {
  const ModelConfig& g = c.config;
  const Dim kv = heads(g.num_kv_heads);
  const ValueId steps = softplus(b, projection(b, v, prefix + ".wdt", width, kv, g.attention_bias));
  const ValueId grown = b.exp(b.mul(steps, b.weight_f32(prefix + ".A", {kv})));
  return b.view(grown, {batch(), c.tokens, kv, head_dim(1)});
}

ValueId biased_attention(GraphBuilder& b, const DecoderContext& c, ValueId x, int64_t layer) {
  const ModelConfig& g = c.config;
  const std::string prefix = layer_name(layer, "attention");
  const int64_t dim = g.head_dim - 1, kv = g.num_kv_heads;
  const bool bias = g.attention_bias;
  const auto projected = [&](const char* name, int64_t count) {
    return projection(b, x, prefix + name, g.hidden_size, count * dim, bias);
  };
  const auto by_head = [&](ValueId rows, int64_t count) {
    return b.view(rows, {batch(), c.tokens, heads(count), head_dim(dim)});
  };
  const auto turned = [&](const char* name, const char* norm, const RopeTable& table,
                          int64_t count) {
    const ValueId rows = by_head(projected(name, count), count);
    return rope(b, table, rms_norm(b, rows, prefix + norm, g.rms_norm_eps));
  };
  const AttentionKind& kind = c.kind_of(layer);
  const ValueId q = turned(".wq", ".q_norm.weight", kind.query_rope, g.num_heads);
  const ValueId k = turned(".wk", ".k_norm.weight", kind.rope, kv);
  const ValueId v = projected(".wv", kv);
  const ValueId added = biases_of_keys(b, c, v, kv * dim, prefix);
  // The scale of the scores leaves the bias as it is.
  const ValueId none = b.mul(b.slice(q, 3, 0, 1), 0.0);
  const ValueId factor = b.add(none, b.scalar(static_cast<float>(1.0 / *g.scalars.attention)));
  // Values have the size of keys. Their last dimension is not used: in caches with a scale for each
  // row a large bias would cost the others their precision.
  const ValueId unused = b.mul(added, 0.0);
  const ValueId values = b.cat({by_head(v, kv), unused}, 3), keys = b.cat({k, added}, 3);
  const ValueId mixed = attend(b, c, layer, b.cat({q, factor}, 3), keys, values);
  const int64_t width = g.num_heads * dim;
  const ValueId out = b.view(b.slice(mixed, 3, 0, dim), {batch(), c.tokens, features(width)});
  return projection(b, out, prefix + ".wo", width, g.hidden_size, bias);
}

ValueId build_layer(GraphBuilder& b, const DecoderContext& c, ValueId x, int64_t layer) {
  const ModelConfig& g = c.config;
  const auto norm = [&](const char* name) {
    return rms_norm(b, x, layer_name(layer, name) + ".weight", g.rms_norm_eps);
  };
  const auto kept = [&](const char* block) {
    const std::string weight = layer_name(layer, block) + ".residual";
    return b.mul(x, b.weight_f32(weight, {features(g.hidden_size)}));
  };
  const ValueId mixed = biased_attention(b, c, norm("attention_norm"), layer);
  x = b.add(kept("attention"), mixed);
  const ValueId mapped =
      gated_mlp(b, g, norm("ffn_norm"), layer_name(layer, "feed_forward"), g.intermediate_size);
  return b.add(kept("feed_forward"), mapped);
}

Result<Methods> build(const ModelConfig& config, const BuildOptions& options) {
  if (const int64_t kept = config.number(kKept); options.context_length > kept) {
    return fail(ErrorCode::kUnsupported,
                fmt::format("'keep_window_size' is {}, less than the context of {}: not supported; "
                            "a context of {} has all keys",
                            kept, options.context_length, kept));
  }
  const auto final_norm = [&](GraphBuilder& b, ValueId x) {
    return rms_norm(b, x, "norm.weight", config.rms_norm_eps);
  };
  return build_frame(config, options, {.layer = build_layer, .final_norm = final_norm});
}

}  // namespace

const FamilySpec kFamily = {
    .types = {{.name = "doge",
               .defaults = R"({"vocab_size": 32768, "hidden_size": 1024,
                               "intermediate_size": 2048, "num_hidden_layers": 32,
                               "num_attention_heads": 8, "max_position_embeddings": 2048,
                               "keep_window_size": 2048})",
               .window = WindowRule::kAll,
               .attention_bias = true,
               .mlp_bias = true,
               .read = read}},
    .components = {{.rules = rules, .build = build}},
    .classifiers = {{"Doge", score_head, /*texts=*/true, /*tokens=*/false}}};

}  // namespace ferry::converters::families::doge
