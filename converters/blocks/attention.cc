#include "converters/blocks/attention.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <optional>

#include "converters/blocks/blocks.h"
#include "converters/blocks/caches.h"
#include "converters/blocks/decoder_context.h"
#include "converters/blocks/relative_bias.h"
#include "converters/blocks/static_ports.h"
#include "core/program_interface.h"

namespace ferry::converters {
namespace {

// Parameters of attention that is composed of core operators. llama::custom_sdpa has neither a
// softcap on the scores (Gemma 2) nor attention sinks (GPT-OSS).
struct ScoreStyle {
  double scale = 1.0;              // multiplies q k
  std::optional<double> cap = {};  // scores become cap * tanh(score / cap)
  // f32 [H]: one more score per head, which takes its share of the softmax and has no value.
  ValueId sinks = {};
};

// Returns the softmax of scores [KV,groups,T,n] in the same shape. Sinks take part in the softmax
// and are cut off.
ValueId softmax_with_sinks(GraphBuilder& b, ValueId scores, ValueId sinks) {
  if (!sinks.valid()) return b.softmax_last(scores);
  const Dims shape = b.graph()[scores].shape;
  const Dim group = heads(shape[1]);  // query heads that share a key head
  const ValueId by_head = b.view(sinks, {shape[0], group, 1, 1});
  const ValueId column = b.expand(by_head, {shape[0], shape[1], shape[2], 1});
  const ValueId weights = b.softmax_last(b.cat({column, scores}, 3));
  return b.slice(weights, 3, 1, std::numeric_limits<int64_t>::max());
}

// Returns softmax(scores + mask) v as [1,T,H,D]. query is [1,T,H,D]; keys and values are
// [1,n,KV,D], where H is a multiple of KV; the additive mask is that of KeyRange or absent.
ValueId composed_attention(GraphBuilder& b, ValueId query, ValueId keys, ValueId values,
                           ValueId mask, const ScoreStyle& style) {
  const Dims shape = b.graph()[query].shape;
  const Dim tokens = shape[1], dim = shape[3];
  const Dim count = b.graph()[keys].shape[1];
  const Dim kv_heads = b.graph()[keys].shape[2];
  const int64_t groups = shape[2].base / kv_heads.base;
  // The query heads that share a key head are rows of one product, so that no key is copied.
  const Dim rows = Dim::of(tokens.symbol, groups);
  const ValueId grouped = b.permute(
      b.view(b.mul(query, style.scale / style.cap.value_or(1.0)), {tokens, kv_heads, groups, dim}),
      {1, 2, 0, 3});
  const ValueId left = b.view(grouped, {kv_heads, rows, dim});
  const ValueId right = b.permute(b.view(keys, {count, kv_heads, dim}), {1, 2, 0});
  ValueId scores = b.bmm(left, right);
  if (style.cap) scores = b.mul(b.tanh(scores), *style.cap);
  ValueId masked = b.view(scores, {kv_heads, groups, tokens, count});
  if (mask.valid()) masked = b.add(masked, mask);
  const ValueId weights =
      b.view(softmax_with_sinks(b, masked, style.sinks), {kv_heads, rows, count});
  const ValueId held = b.permute(b.view(values, {count, kv_heads, dim}), {1, 0, 2});
  const ValueId mixed = b.view(b.bmm(weights, held), {kv_heads, groups, tokens, dim});
  return b.view(b.permute(mixed, {2, 0, 1, 3}), shape);
}

double score_scale(const ModelConfig& config, int64_t layer) {
  const double usual = 1.0 / std::sqrt(static_cast<double>(config.heads_of(layer).dim));
  return config.scalars.attention.value_or(usual);
}

// Attends to the keys that the mask of the layer's kind shows. q is [1,T,H,D]; keys and values are
// those of KeyRange.
ValueId attend_masked(GraphBuilder& b, const DecoderContext& c, int64_t layer, ValueId q,
                      ValueId keys, ValueId values) {
  const ScalarConfig& scalars = c.config.scalars;
  const ValueId mask = layer_mask(b, c, layer);
  const ValueId sinks = attention_sinks(b, c, layer);
  const bool biased = mask.valid() && b.graph()[mask].shape.size() > 2;
  if (!scalars.attention_softcap && !sinks.valid() && !biased) {
    return b.sdpa_masked(q, keys, values, mask, scalars.attention);
  }
  return composed_attention(
      b, q, keys, values, mask,
      {.scale = score_scale(c.config, layer), .cap = scalars.attention_softcap, .sinks = sinks});
}

// Attends to the cache, which has been written up to the last position of the call. q is [1,T,H,D].
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

// Attends to the keys and values of the call, in an encoder.
ValueId attend_to_call(GraphBuilder& b, const DecoderContext& c, int64_t layer, ValueId q,
                       ValueId keys, ValueId values) {
  const std::optional<double>& scale = c.config.scalars.attention;
  if (c.kind_of(layer).range) return attend_masked(b, c, layer, q, keys, values);
  return c.config.two_way ? b.sdpa_full(q, keys, values, scale)
                          : b.sdpa(q, keys, values, c.start_pos, scale);
}

// Normalises x [1,T,heads,head_dim] over head_dim and multiplies it by a weight [heads, head_dim].
ValueId norm_by_head(GraphBuilder& b, ValueId x, const std::string& name, double eps) {
  const Dims& shape = b.graph()[x].shape;
  const Dims width = {shape[2], shape[3]};
  const ValueId weight = b.weight_f32(name + ".weight", width);  // f32, as no linear layer
  return b.mul(norm(b, NormKind::kLayerBare, x, name, eps), weight);
}

ValueId norm_of_qk(GraphBuilder& b, AttentionStyle::QkNorm kind, ValueId x, const std::string& name,
                   double eps) {
  using enum AttentionStyle::QkNorm;
  if (kind == kLayerByHead) return norm_by_head(b, x, name, eps);
  if (kind == kAfterBare) return norm(b, NormKind::kRmsBare, x, name, eps);
  return norm(b, kind == kLayer ? NormKind::kLayer : NormKind::kRms, x, name, eps);
}

// A masked column weighs exp(-20) of the least column that the query may attend to.
constexpr float kBelowSmallest = -20.0F;

// Returns the masked scores, as the softmax takes them. `mask` is 0 where a query may attend.
ValueId masked_scores(GraphBuilder& b, const DecoderContext& c, ValueId scores, ValueId mask) {
  if (c.options.softmax == SoftmaxStyle::kPlain) return b.add(scores, mask);
  const ValueId seen = b.eq(mask, 0);
  const ValueId smallest = b.amin_last(scores);
  const ValueId hidden = b.add(smallest, b.scalar(kBelowSmallest));
  return b.where(seen, scores, hidden);
}

// Builds attention of a static program of core operators, over the keys and values that
// StaticPorts::extend() returned. Scores are scaled, capped where the model has a softcap, and
// masked as BuildOptions::softmax says. Source: ExecuTorch,
// examples/qualcomm/oss_scripts/llama/model/static_llama.py, LlamaAttention.
ValueId static_attend(GraphBuilder& b, const DecoderContext& c, int64_t layer, ValueId query,
                      ValueId all_keys, ValueId all_values) {
  const ModelConfig& g = c.config;
  const int64_t tokens = c.tokens.base, context = c.options.context_length;
  const HeadSizes sizes = g.heads_of(layer);
  const int64_t groups = g.num_heads / sizes.kv_heads;
  const Dim all = positions(context), kv = heads(sizes.kv_heads), dim = head_dim(sizes.dim);
  // The query heads that share a key head are rows of one product, so that no key is copied.
  const double cap = g.scalars.attention_softcap.value_or(1.0);
  const ValueId by_head = b.permute(b.mul(query, score_scale(g, layer) / cap), {0, 2, 1, 3});
  const ValueId rows = b.view(by_head, {kv, groups * tokens, dim});
  ValueId scores = b.bmm(rows, b.view(all_keys, {kv, dim, all}));
  if (g.scalars.attention_softcap) scores = b.mul(b.tanh(scores), cap);
  ValueId grouped = b.view(scores, {kv, groups, positions(tokens), all});
  if (c.kind_of(layer).bias.valid()) grouped = b.add(grouped, c.kind_of(layer).bias);
  const ValueId masked = masked_scores(b, c, grouped, c.kind_of(layer).mask);
  const ValueId weights = b.view(softmax_with_sinks(b, masked, attention_sinks(b, c, layer)),
                                 {kv, groups * tokens, all});
  const ValueId mixed = b.bmm(weights, b.view(all_values, {kv, all, dim}));
  const ValueId out = b.view(mixed, {batch(), heads(g.num_heads), positions(tokens), dim});
  return b.permute(out, {0, 2, 1, 3});
}

// Extends the cache by keys and values [1,A,G,D] of this call and attends to all of it: query
// [1,A,H,D] -> [1,A,H,D].
ValueId static_attention(GraphBuilder& b, const DecoderContext& c, int64_t layer, ValueId query,
                         ValueId keys, ValueId values) {
  const auto [all_keys, all_values] = c.ports->extend(b, layer, keys, values);
  return static_attend(b, c, layer, query, all_keys, all_values);
}

// Attends to all rows of an encoder, for the `tokens` of the call. The operator takes as many keys
// as start_pos and the tokens make, causal or not, unless it has a mask. A call may have more
// tokens than a short sound has rows, and then there is no such start_pos: a mask of zeros asks for
// all keys. No operator knows the softcap.
ValueId attend_to_encoded(GraphBuilder& b, const ModelConfig& g, graph::IntArg tokens, ValueId q,
                          ValueId keys, ValueId values) {
  const Dim rows = b.graph()[keys].shape[1];
  if (rows.is_static()) {
    return b.sdpa_full(q, keys, values, g.scalars.attention, b.int_sub(rows.base, tokens));
  }
  const ValueId count = b.sym_size(keys, 1);
  if (!b.graph().symbols[static_cast<size_t>(rows.symbol)].value.valid()) {
    b.bind_symbol(rows.symbol, count);
  }
  if (g.scalars.attention_softcap) {
    return composed_attention(
        b, q, keys, values, ValueId{},
        {.scale = score_scale(g, 0), .cap = g.scalars.attention_softcap, .sinks = ValueId{}});
  }
  const ValueId zero = b.view(b.scalar(0.0F), {1, 1});
  const ValueId mask = b.expand_to(zero, {tokens, count});
  return b.sdpa_masked(q, keys, values, mask, g.scalars.attention);
}

// Element (i, j) is negative where the binary numbers i and j have an odd number of ones in common.
graph::Literal hadamard_matrix(int64_t size) {
  const auto rows = static_cast<uint64_t>(size);
  const auto entry = static_cast<float>(1.0 / std::sqrt(static_cast<double>(size)));
  const auto fill = [rows, entry](uint64_t offset, std::span<std::byte> out) {
    while (!out.empty()) {
      const uint64_t element = offset / sizeof(float);
      const bool odd = std::popcount(element / rows & element % rows) % 2 != 0;
      const auto value = std::bit_cast<std::array<std::byte, sizeof(float)>>(odd ? -entry : entry);
      // A tile may begin and end inside a number.
      const uint64_t skipped = offset % sizeof(float);
      const size_t count = std::min<size_t>(sizeof(float) - skipped, out.size());
      std::ranges::copy(std::span(value).subspan(skipped, count), out.begin());
      out = out.subspan(count);
      offset += count;
    }
  };
  return {.key = fmt::format("hadamard:{}", size), .bytes = rows * rows * 4, .fill = fill};
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
  x = rounded_inputs(b, g, x);
  ValueId q =
      projection(b, x, prefix + ".wq", g.hidden_size, g.num_heads * q_width, style.qkv_bias);
  ValueId k = projection(b, x, prefix + ".wk", g.hidden_size, g.kv_size(),
                         style.qkv_bias && !style.bare_keys);
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
  const bool after = style.qk_norm == kAfter || style.qk_norm == kAfterBare;
  if (style.qk_norm != kNone && style.qk_norm != kWhole && !after) norm_qk(q, k);
  if (g.rope_layers[static_cast<size_t>(layer)]) {
    q = rope(b, kind.query_rope, q);
    k = rope(b, kind.rope, k);
  } else if (c.query_growth.valid()) {
    q = b.mul(q, c.query_growth);
  }
  if (after) norm_qk(q, k);
  ValueId out = attend(b, c, layer, q, k, v);
  out = b.view(out, {batch(), c.tokens, features(g.q_size())});
  if (style.own_gate) gate = projection(b, x, prefix + ".wg", g.hidden_size, g.q_size(), false);
  if (gate.valid()) out = b.mul(out, b.sigmoid(gate));
  if (style.output_norm) out = rms_norm(b, out, prefix + ".output_norm.weight", g.rms_norm_eps);
  out = rounded_inputs(b, g, out);
  return projection(b, out, prefix + ".wo", g.q_size(), g.hidden_size, style.output_bias);
}

namespace {

// The biases of cross-attention.
struct CrossBiases {
  bool query, key, value, output;
};
CrossBiases cross_biases(const ModelConfig& config) {
  if (config.source) {
    const bool all = config.source->bias;
    return {all, all, all, all};
  }
  const AudioConfig& audio = *config.audio;
  return {audio.query_bias, audio.key_bias, audio.value_bias, audio.output_bias};
}

}  // namespace

ValueId cross_attention(GraphBuilder& b, const DecoderContext& c, ValueId x, int64_t layer) {
  const ModelConfig& g = c.config;
  const std::string prefix = layer_name(layer, "cross_attention");
  const Dims shape = {batch(), c.encoded, heads(g.num_kv_heads), head_dim(g.head_dim)};
  const auto encoded = [&](std::string_view port) {
    return b.input(fmt::format("{}{}", port, layer), DType::kF32, shape);
  };
  const ValueId keys = encoded(kCrossKPort);
  const ValueId values = encoded(kCrossVPort);
  ValueId q = projection(b, x, prefix + ".wq", g.hidden_size, g.q_size(), cross_biases(g).query);
  q = b.view(q, {batch(), c.tokens, heads(g.num_heads), head_dim(g.head_dim)});
  const ValueId mixed = attend_to_encoded(b, g, b.sym_size(x, 1), q, keys, values);
  const ValueId joined = b.view(mixed, {batch(), c.tokens, features(g.q_size())});
  return projection(b, joined, prefix + ".wo", g.q_size(), g.hidden_size, cross_biases(g).output);
}

void cross_keys_and_values(GraphBuilder& b, const ModelConfig& config, ValueId x, Dim rows) {
  const Dims shape = {batch(), rows, heads(config.num_kv_heads), head_dim(config.head_dim)};
  const int64_t width = config.source ? config.source->hidden_size : config.hidden_size;
  for (int64_t layer = 0; layer < config.num_layers; ++layer) {
    const std::string prefix = layer_name(layer, "cross_attention");
    const ValueId keys =
        projection(b, x, prefix + ".wk", width, config.kv_size(), cross_biases(config).key);
    b.output(b.view(keys, shape), fmt::format("{}{}", kCrossKPort, layer));
    const ValueId values =
        projection(b, x, prefix + ".wv", width, config.kv_size(), cross_biases(config).value);
    b.output(b.view(values, shape), fmt::format("{}{}", kCrossVPort, layer));
  }
}

ValueId hadamard_rotation(GraphBuilder& b, ValueId x) {
  const Dim dim = b.graph()[x].shape.back();
  const ValueId matrix = b.literal(DType::kF32, {dim, dim}, hadamard_matrix(dim.base));
  return b.linear(x, matrix);
}

}  // namespace ferry::converters
