#include "converters/blocks/attention.h"

#include <fmt/format.h>

#include <cmath>

#include "converters/blocks/axes.h"
#include "converters/blocks/blocks.h"
#include "converters/blocks/caches.h"
#include "converters/blocks/composed_attention.h"
#include "converters/blocks/hadamard.h"
#include "converters/blocks/held_rows.h"
#include "converters/blocks/static_attention.h"
#include "converters/blocks/static_ports.h"

namespace ferry::converters {
namespace {

// q [1,T,H,D]; keys and values are those of the range of the layer's kind.
ValueId attend_masked(GraphBuilder& b, const DecoderContext& c, int64_t layer, ValueId q,
                      ValueId keys, ValueId values) {
  const ScalarConfig& scalars = c.config.scalars;
  const ValueId mask = c.kind_of(layer).range->mask;
  const ValueId sinks = attention_sinks(b, c, layer);
  if (!scalars.attention_softcap && !sinks.valid()) {
    return b.sdpa_masked(q, keys, values, mask, scalars.attention);
  }
  const double usual = 1.0 / std::sqrt(static_cast<double>(c.config.head_dim));
  return composed_attention(b, q, keys, values, mask,
                            {.scale = scalars.attention.value_or(usual),
                             .cap = scalars.attention_softcap,
                             .sinks = sinks});
}

// q [1,T,H,D]; the cache has been written up to the last position of the call.
ValueId attend_to(GraphBuilder& b, const DecoderContext& c, int64_t layer, ValueId q,
                  const KvCache& cache) {
  const AttentionKind& kind = c.kind_of(layer);
  const ScalarConfig& scalars = c.config.scalars;
  if (!kind.range && c.options.kv_cache == DType::kF32) {
    return b.sdpa(q, cache.keys.rows, cache.values.rows, c.start_pos, scalars.attention);
  }
  if (!kind.range) {
    const ValueId keys = cached(b, c, cache.keys, 0, c.written);
    const ValueId values = cached(b, c, cache.values, 0, c.written);
    return b.sdpa(q, keys, values, c.start_pos, scalars.attention);
  }
  const KeyRange& range = *kind.range;
  const ValueId keys = cached(b, c, cache.keys, range.start, range.keys);
  const ValueId values = cached(b, c, cache.values, range.start, range.keys);
  return attend_masked(b, c, layer, q, keys, values);
}

// In an encoder: keys and values are those of the call.
ValueId attend_to_call(GraphBuilder& b, const DecoderContext& c, int64_t layer, ValueId q,
                       ValueId keys, ValueId values) {
  const std::optional<double>& scale = c.config.scalars.attention;
  if (c.kind_of(layer).range) return attend_masked(b, c, layer, q, keys, values);
  return c.config.two_way ? b.sdpa_full(q, keys, values, scale)
                          : b.sdpa(q, keys, values, c.start_pos, scale);
}

// x [1,T,heads,head_dim] over head_dim, times a weight [heads, head_dim].
ValueId norm_by_head(GraphBuilder& b, ValueId x, const std::string& name, double eps) {
  const Dims& shape = b.graph()[x].shape;
  const Dims width = {shape[2], shape[3]};
  const ValueId weight = b.weight_f32(name + ".weight", width);  // no matrix of a linear layer
  return b.mul(norm(b, NormKind::kLayerBare, x, name, eps), weight);
}

ValueId norm_of_qk(GraphBuilder& b, AttentionStyle::QkNorm kind, ValueId x, const std::string& name,
                   double eps) {
  using enum AttentionStyle::QkNorm;
  if (kind == kLayerByHead) return norm_by_head(b, x, name, eps);
  return norm(b, kind == kLayer ? NormKind::kLayer : NormKind::kRms, x, name, eps);
}

}  // namespace

ValueId attend(GraphBuilder& b, const DecoderContext& c, int64_t layer, ValueId q, ValueId k,
               ValueId v) {
  if (c.config.number(kScoresByLayer) != 0) q = b.mul(q, 1.0 / static_cast<double>(layer + 1));
  if (c.options.rotation == Rotation::kR3) {
    q = hadamard_rotation(b, q);
    k = hadamard_rotation(b, k);
  }
  if (c.ports != nullptr) return static_attention(b, c, layer, q, k, v);
  if (c.options.style == ProgramStyle::kEncoder) return attend_to_call(b, c, layer, q, k, v);
  return attend_to(b, c, layer, q, updated_kv_cache(b, c, layer, k, v));
}

HeldRows hold_rows(GraphBuilder& b, const DecoderContext& c, int64_t layer, ValueId keys,
                   ValueId values) {
  if (c.options.rotation == Rotation::kR3) keys = hadamard_rotation(b, keys);
  if (c.ports != nullptr) {
    const auto [all_keys, all_values] = c.ports->extend(b, layer, keys, values);
    return {all_keys, all_values};
  }
  if (c.options.style == ProgramStyle::kEncoder) return {keys, values};
  const KvCache cache = updated_kv_cache(b, c, layer, keys, values);
  const std::optional<KeyRange>& range = c.kind_of(layer).range;
  const graph::IntArg start = range ? range->start : graph::IntArg(0);
  const Dim count = range ? range->keys : c.written;
  const ValueId held_keys = cached(b, c, cache.keys, start, count);
  const ValueId held_values = cached(b, c, cache.values, start, count);
  b.name(held_keys, fmt::format("held_keys_{}", layer));
  b.name(held_values, fmt::format("held_values_{}", layer));
  return {held_keys, held_values};
}

ValueId attend_held(GraphBuilder& b, const DecoderContext& c, int64_t layer, ValueId q,
                    const HeldRows& rows) {
  if (c.options.rotation == Rotation::kR3) q = hadamard_rotation(b, q);
  if (c.ports != nullptr) return static_attend(b, c, layer, q, rows.keys, rows.values);
  if (c.options.style == ProgramStyle::kEncoder) {
    return attend_to_call(b, c, layer, q, rows.keys, rows.values);
  }
  if (c.kind_of(layer).range) return attend_masked(b, c, layer, q, rows.keys, rows.values);
  return b.sdpa(q, rows.keys, rows.values, c.start_pos, c.config.scalars.attention);
}

ValueId attention(GraphBuilder& b, const DecoderContext& c, ValueId x, int64_t layer,
                  const AttentionStyle& style) {
  using enum AttentionStyle::QkNorm;
  const ModelConfig& g = c.config;
  const AttentionKind& kind = c.kind_of(layer);
  const std::string prefix = layer_name(layer, "attention");
  const int64_t head = g.head_dim;
  const int64_t q_width = style.output_gate ? 2 * head : head;
  const auto norm_qk = [&](ValueId& q, ValueId& k) {
    q = norm_of_qk(b, style.qk_norm, q, prefix + ".q_norm", g.rms_norm_eps);
    k = norm_of_qk(b, style.qk_norm, k, prefix + ".k_norm", g.rms_norm_eps);
  };
  ValueId q =
      projection(b, x, prefix + ".wq", g.hidden_size, g.num_heads * q_width, style.qkv_bias);
  ValueId k = projection(b, x, prefix + ".wk", g.hidden_size, g.kv_size(), style.qkv_bias);
  ValueId v = projection(b, x, prefix + ".wv", g.hidden_size, g.kv_size(), style.qkv_bias);
  if (style.qk_norm == kWhole) norm_qk(q, k);
  if (const std::optional<double> most = g.scalars.qkv_clip) {
    for (ValueId* value : {&q, &k, &v}) *value = b.clamp(*value, -*most, *most);
  }
  q = b.view(q, {batch(), c.tokens, heads(g.num_heads), head_dim(q_width)});
  k = b.view(k, {batch(), c.tokens, heads(g.num_kv_heads), head_dim(head)});
  v = b.view(v, {batch(), c.tokens, heads(g.num_kv_heads), head_dim(head)});
  ValueId gate;
  if (style.output_gate) {
    const std::vector<ValueId> parts = b.split(q, {head, head}, 3);
    q = parts[0];
    gate = b.view(parts[1], {batch(), c.tokens, features(g.q_size())});
  }
  const bool after = style.qk_norm == kAfter;
  if (style.qk_norm != kNone && style.qk_norm != kWhole && !after) norm_qk(q, k);
  if (g.rope_layers[static_cast<size_t>(layer)]) {
    q = rope(b, kind.query_rope, q);
    k = rope(b, kind.rope, k);
  }
  if (after) norm_qk(q, k);
  ValueId out = attend(b, c, layer, q, k, v);
  out = b.view(out, {batch(), c.tokens, features(g.q_size())});
  if (gate.valid()) out = b.mul(out, b.sigmoid(gate));
  return projection(b, out, prefix + ".wo", g.q_size(), g.hidden_size, style.output_bias);
}

}  // namespace ferry::converters
