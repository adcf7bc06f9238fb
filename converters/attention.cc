#include "converters/attention.h"

#include "converters/blocks.h"

// The order of nodes is part of the bytes of a program. No call here takes two arguments that
// append nodes: compilers differ in which they evaluate first.

namespace ferry {

ValueId attention(GraphBuilder& b, const DecoderContext& c, ValueId x, int64_t layer,
                  const AttentionStyle& style) {
  const ModelConfig& g = c.config;
  const AttentionKind& kind = c.kind_of(layer);
  const std::string prefix = layer_name(layer, "attention");
  const int64_t head = g.head_dim;
  const int64_t q_width = style.output_gate ? 2 * head : head;
  ValueId q =
      projection(b, x, prefix + ".wq", g.hidden_size, g.num_heads * q_width, style.qkv_bias);
  ValueId k = projection(b, x, prefix + ".wk", g.hidden_size, g.kv_size(), style.qkv_bias);
  ValueId v = projection(b, x, prefix + ".wv", g.hidden_size, g.kv_size(), style.qkv_bias);
  q = b.view(q, {1, c.tokens, g.num_heads, q_width});
  k = b.view(k, {1, c.tokens, g.num_kv_heads, head});
  v = b.view(v, {1, c.tokens, g.num_kv_heads, head});
  ValueId gate;
  if (style.output_gate) {
    const std::vector<ValueId> parts = b.split(q, {head, head}, 3);
    q = parts[0];
    gate = b.view(parts[1], {1, c.tokens, g.q_size()});
  }
  if (style.qk_norm) {
    q = rms_norm(b, q, prefix + ".q_norm.weight", g.rms_norm_eps);
    k = rms_norm(b, k, prefix + ".k_norm.weight", g.rms_norm_eps);
  }
  q = rope(b, kind.rope, q);
  k = rope(b, kind.rope, k);
  const Dims cache_shape = {1, c.options.context_length, g.num_kv_heads, head};
  const ValueId k_cache = b.buffer(prefix + ".kv_cache.k_cache", DType::kF32, cache_shape);
  const ValueId v_cache = b.buffer(prefix + ".kv_cache.v_cache", DType::kF32, cache_shape);
  b.update_cache(k, k_cache, c.start_pos);
  b.update_cache(v, v_cache, c.start_pos);
  ValueId out;
  if (kind.range) {
    const KeyRange& range = *kind.range;
    const ValueId keys = b.slice(k_cache, 1, range.start, c.end_pos, range.keys);
    const ValueId values = b.slice(v_cache, 1, range.start, c.end_pos, range.keys);
    out = b.sdpa_masked(q, keys, values, range.mask);
  } else {
    out = b.sdpa(q, k_cache, v_cache, c.start_pos);
  }
  out = b.view(out, {1, c.tokens, g.q_size()});
  if (gate.valid()) out = b.mul(out, b.sigmoid(gate));
  return projection(b, out, prefix + ".wo", g.q_size(), g.hidden_size, style.output_bias);
}

}  // namespace ferry
