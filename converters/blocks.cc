#include "converters/blocks.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

// The order of nodes is part of the bytes of a program. No call here takes two arguments that
// append nodes: compilers differ in which they evaluate first.

namespace ferry {
namespace {

// Masked scores. Finite on purpose: a block of keys that is masked as a whole must not turn into
// NaN in a softmax that proceeds block by block, and exp(-65535 - maximum) is exactly zero in f32.
constexpr float kMasked = -65535.0F;

constexpr int64_t kToEnd = std::numeric_limits<int64_t>::max();

// cos or sin of position * inverse frequency, the frequencies twice side by side (half-split RoPE).
// The first half of a sine row is negated, so that x * cos + swapped(x) * sin turns every pair.
Literal rope_table(const ModelConfig& config, int64_t positions, bool sine) {
  const std::vector<float> inverse = rope_inverse_frequencies(config);
  const int64_t half = static_cast<int64_t>(inverse.size());
  Literal literal;
  literal.key = fmt::format("rope.{}.{}", sine ? "sin" : "cos", positions);
  literal.bytes = static_cast<uint64_t>(positions * 2 * half) * sizeof(float);
  literal.fill = [inverse, half, sine](uint64_t offset, std::span<std::byte> out) {
    std::vector<float> row(static_cast<size_t>(2 * half));
    const std::span<const std::byte> bytes = std::as_bytes(std::span(row));
    for (uint64_t p = offset / bytes.size(); !out.empty(); ++p) {
      for (int64_t i = 0; i < half; ++i) {
        // The angle is rounded to f32, as the reference implementation computes it.
        const float angle = static_cast<float>(p) * inverse[static_cast<size_t>(i)];
        const auto value = static_cast<float>(sine ? std::sin(static_cast<double>(angle))
                                                   : std::cos(static_cast<double>(angle)));
        row[static_cast<size_t>(i)] = sine ? -value : value;
        row[static_cast<size_t>(half + i)] = value;
      }
      // A tile may begin and end inside a row.
      const uint64_t skipped = offset - p * bytes.size();
      const size_t count = std::min<size_t>(bytes.size() - skipped, out.size());
      std::ranges::copy(bytes.subspan(skipped, count), out.begin());
      out = out.subspan(count);
      offset += count;
    }
  };
  return literal;
}

// Turns the first rotary_dim dimensions of every head of x [1,T,heads,head_dim].
ValueId rope(GraphBuilder& b, const DecoderContext& c, ValueId x) {
  const int64_t rotary = c.config.rotary_dim();
  const bool partial = rotary < c.config.head_dim;
  const ValueId turned = partial ? b.slice(x, 3, 0, rotary) : x;
  const ValueId first = b.slice(turned, 3, 0, rotary / 2);
  const ValueId second = b.slice(turned, 3, rotary / 2, kToEnd);
  const ValueId swapped = b.cat({second, first}, 3);
  const ValueId straight = b.mul(turned, c.rope_cos);
  const ValueId across = b.mul(swapped, c.rope_sin);
  const ValueId out = b.add(straight, across);
  return partial ? b.cat({out, b.slice(x, 3, rotary, kToEnd)}, 3) : out;
}

bool uses_window(const ModelConfig& config, const BuildOptions& options) {
  return config.sliding_window && *config.sliding_window < options.context_length &&
         std::ranges::count(config.layer_types, LayerType::kSlidingAttention) > 0;
}

// A query at position p sees the keys (p - window, p]. The keys are a slice of the cache that holds
// only written positions, because a masked kernel reads everything it is given.
void add_window(GraphBuilder& b, DecoderContext& c) {
  const int64_t window = *c.config.sliding_window;
  c.window_start = b.int_max(b.int_sub(c.start_pos, window - 1), 0);
  const ValueId keys = b.int_sub(c.end_pos, c.window_start);
  const int64_t most = std::min(c.options.context_length, window - 1 + c.options.prefill_length);
  c.window_keys = Dim::of(b.symbol("W", most, keys));
  const ValueId rows = b.unsqueeze(b.arange(c.start_pos, c.end_pos, c.tokens), 1);
  const ValueId columns = b.arange(c.window_start, c.end_pos, c.window_keys);
  const ValueId distance = b.sub(rows, columns);
  const ValueId not_after = b.ge(distance, 0);
  const ValueId inside = b.lt(distance, window);
  const ValueId seen = b.logical_and(not_after, inside);
  const ValueId open = b.scalar(0.0F);
  const ValueId masked = b.scalar(kMasked);
  c.window_mask = b.where(seen, open, masked);
  b.name(c.window_mask, "window_mask");
}

DecoderContext make_context(GraphBuilder& b, const ModelConfig& config, const BuildOptions& options,
                            ValueId input_pos, int32_t token_symbol) {
  DecoderContext c{.config = config, .options = options};
  c.tokens = Dim::of(token_symbol);
  const ValueId position = b.select(input_pos, 0, 0);
  c.start_pos = b.item(position);
  c.end_pos = b.int_add(c.start_pos, b.graph().symbols[static_cast<size_t>(token_symbol)].value);
  const bool has_state = std::ranges::count(config.layer_types, LayerType::kLinearAttention) > 0;
  const bool has_attention =
      std::ranges::count(config.layer_types, LayerType::kLinearAttention) < config.num_layers;
  if (has_state) c.is_start = b.eq(position, 0);
  if (has_attention) {
    const Shape shape = {options.context_length, 1, config.rotary_dim()};
    const ValueId cos =
        b.literal(DType::kF32, shape, rope_table(config, options.context_length, /*sine=*/false));
    const ValueId sin =
        b.literal(DType::kF32, shape, rope_table(config, options.context_length, /*sine=*/true));
    c.rope_cos = b.slice(cos, 0, c.start_pos, c.end_pos, c.tokens);
    c.rope_sin = b.slice(sin, 0, c.start_pos, c.end_pos, c.tokens);
    b.name(c.rope_cos, "rope_cos");
    b.name(c.rope_sin, "rope_sin");
  }
  if (uses_window(config, options)) add_window(b, c);
  return c;
}

ValueId silu(GraphBuilder& b, ValueId x) { return b.mul(x, b.sigmoid(x)); }

// log(1 + exp(x)), x itself above 20 as the reference computes it.
ValueId softplus(GraphBuilder& b, ValueId x) {
  const ValueId linear = b.gt(x, 20.0);
  const ValueId curved = b.log1p(b.exp(x));
  return b.where(linear, x, curved);
}

// x * rsqrt(sum(x^2) + 1e-6) over the last dimension.
ValueId l2_norm(GraphBuilder& b, ValueId x) {
  const ValueId sum = b.sum_last(b.mul(x, x));
  return b.mul(x, b.rsqrt(b.add(sum, b.scalar(1e-6F))));
}

// [1,T,heads,dim] -> [1,T,heads*groups,dim], each head `groups` times in a row.
ValueId repeat_heads(GraphBuilder& b, ValueId x, Dim tokens, int64_t heads, int64_t dim,
                     int64_t groups) {
  if (groups == 1) return x;
  const ValueId wide = b.expand(b.unsqueeze(x, 3), {1, tokens, heads, groups, dim});
  return b.view(wide, {1, tokens, heads * groups, dim});
}

// The causal convolution of a delta net over mixed [1,T,channels] with its rolling state.
ValueId causal_conv(GraphBuilder& b, const DecoderContext& c, ValueId mixed,
                    const std::string& prefix) {
  const LinearAttentionConfig& lin = c.config.linear;
  const int64_t channels = lin.conv_channels();
  const int64_t kernel = lin.conv_kernel;
  // The last `kernel` raw inputs, one more than the convolution needs: the layout that transformers
  // and ExecuTorch keep.
  const ValueId state = b.buffer(prefix + ".conv_state", DType::kF32, {1, channels, kernel});
  const ValueId past = b.where(c.is_start, b.scalar(0.0F), state);
  const ValueId columns = b.cat({b.slice(past, 2, 1, kernel), b.permute(mixed, {0, 2, 1})}, 2);
  b.slice_into(state, columns, 2, -kernel, kToEnd);
  const ValueId weight = b.weight(prefix + ".conv1d.weight", {channels, 1, kernel});
  return b.permute(silu(b, b.depthwise_conv1d(columns, weight)), {0, 2, 1});
}

}  // namespace

std::string layer_name(int64_t layer, const char* part) {
  return fmt::format("layers.{}.{}", layer, part);
}

ValueId rms_norm(GraphBuilder& b, ValueId x, const std::string& weight, double eps) {
  const Dim width = b.graph()[x].shape.back();
  const ValueId mean = b.mean_last(b.mul(x, x));
  const ValueId inverse = b.rsqrt(b.add(mean, b.scalar(static_cast<float>(eps))));
  const ValueId normed = b.mul(x, inverse);
  return b.mul(normed, b.weight(weight, {width}));
}

ValueId projection(GraphBuilder& b, ValueId x, const std::string& name, int64_t in, int64_t out,
                   bool bias) {
  const ValueId y = b.linear(x, b.weight(name + ".weight", {out, in}));
  return bias ? b.add(y, b.weight(name + ".bias", {out})) : y;
}

ValueId attention(GraphBuilder& b, const DecoderContext& c, ValueId x, const std::string& prefix,
                  const AttentionStyle& style, bool sliding) {
  const ModelConfig& g = c.config;
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
  q = rope(b, c, q);
  k = rope(b, c, k);
  const Dims cache_shape = {1, c.options.context_length, g.num_kv_heads, head};
  const ValueId k_cache = b.buffer(prefix + ".kv_cache.k_cache", DType::kF32, cache_shape);
  const ValueId v_cache = b.buffer(prefix + ".kv_cache.v_cache", DType::kF32, cache_shape);
  b.update_cache(k, k_cache, c.start_pos);
  b.update_cache(v, v_cache, c.start_pos);
  ValueId out;
  if (sliding && c.window_mask.valid()) {
    const ValueId keys = b.slice(k_cache, 1, c.window_start, c.end_pos, c.window_keys);
    const ValueId values = b.slice(v_cache, 1, c.window_start, c.end_pos, c.window_keys);
    out = b.sdpa_masked(q, keys, values, c.window_mask);
  } else {
    out = b.sdpa(q, k_cache, v_cache, c.start_pos);
  }
  out = b.view(out, {1, c.tokens, g.q_size()});
  if (gate.valid()) out = b.mul(out, b.sigmoid(gate));
  return projection(b, out, prefix + ".wo", g.q_size(), g.hidden_size, style.output_bias);
}

ValueId gated_delta_net(GraphBuilder& b, const DecoderContext& c, ValueId x,
                        const std::string& prefix) {
  const ModelConfig& g = c.config;
  const LinearAttentionConfig& lin = g.linear;
  const int64_t heads = lin.value_heads;
  const ValueId mixed =
      projection(b, x, prefix + ".in_proj_qkv", g.hidden_size, lin.conv_channels(), false);
  const ValueId z = projection(b, x, prefix + ".in_proj_z", g.hidden_size, lin.value_size(), false);
  const ValueId beta_in = projection(b, x, prefix + ".in_proj_b", g.hidden_size, heads, false);
  const ValueId alpha_in = projection(b, x, prefix + ".in_proj_a", g.hidden_size, heads, false);

  const ValueId convolved = causal_conv(b, c, mixed, prefix);
  const std::vector<ValueId> parts =
      b.split(convolved, {lin.key_size(), lin.key_size(), lin.value_size()}, 2);
  const auto key_heads = [&](ValueId part) {
    return b.view(part, {1, c.tokens, lin.key_heads, lin.key_dim});
  };
  const auto all_heads = [&](ValueId part) {
    return b.permute(repeat_heads(b, part, c.tokens, lin.key_heads, lin.key_dim, lin.groups()),
                     {0, 2, 1, 3});
  };
  const double scale = 1.0 / std::sqrt(static_cast<double>(lin.key_dim));
  const ValueId query = all_heads(b.mul(l2_norm(b, key_heads(parts[0])), scale));
  const ValueId key = all_heads(l2_norm(b, key_heads(parts[1])));
  const ValueId value =
      b.permute(b.view(parts[2], {1, c.tokens, heads, lin.value_dim}), {0, 2, 1, 3});

  // Per value head: beta in (0, 1), and the decay exp(A * softplus(a + dt_bias)) with A < 0.
  const ValueId beta = b.permute(b.sigmoid(beta_in), {0, 2, 1});
  const ValueId rate = softplus(b, b.add(alpha_in, b.weight(prefix + ".dt_bias", {heads})));
  const ValueId decay = b.permute(b.exp(b.mul(rate, b.weight(prefix + ".A", {heads}))), {0, 2, 1});

  const ValueId state =
      b.buffer(prefix + ".recurrent_state", DType::kF32, {1, heads, lin.key_dim, lin.value_dim});
  const ValueId initial = b.where(c.is_start, b.scalar(0.0F), state);
  const ValueId mixed_out = b.gated_delta_rule(query, key, value, decay, beta, initial, state);

  const ValueId normed =
      rms_norm(b, b.permute(mixed_out, {0, 2, 1, 3}), prefix + ".norm.weight", g.rms_norm_eps);
  const ValueId gate = silu(b, b.view(z, {1, c.tokens, heads, lin.value_dim}));
  const ValueId out = b.view(b.mul(normed, gate), {1, c.tokens, lin.value_size()});
  return projection(b, out, prefix + ".out_proj", lin.value_size(), g.hidden_size, false);
}

ValueId gated_mlp(GraphBuilder& b, const ModelConfig& g, ValueId x, const std::string& prefix) {
  const ValueId gate =
      projection(b, x, prefix + ".w1", g.hidden_size, g.intermediate_size, g.mlp_bias);
  const ValueId up =
      projection(b, x, prefix + ".w3", g.hidden_size, g.intermediate_size, g.mlp_bias);
  return projection(b, b.mul(silu(b, gate), up), prefix + ".w2", g.intermediate_size, g.hidden_size,
                    g.mlp_bias);
}

Result<Graph> build_decoder(const ModelConfig& config, const BuildOptions& options,
                            const Mixer& mixer) {
  GraphBuilder b(static_cast<int32_t>(config.num_layers));
  const int32_t t = b.symbol("T", options.prefill_length, ValueId{});
  const ValueId tokens = b.input("tokens", DType::kI64, {1, Dim::of(t)});
  const ValueId input_pos = b.input("input_pos", DType::kI64, {1});
  b.bind_symbol(t, b.sym_size(tokens, 1));
  const DecoderContext c = make_context(b, config, options, input_pos, t);

  const ValueId table = b.weight("tok_embeddings.weight", {config.vocab_size, config.hidden_size});
  ValueId x = b.embedding(table, tokens);
  b.probe("hidden_states.0", x);
  for (int64_t layer = 0; layer < config.num_layers; ++layer) {
    b.set_layer(static_cast<int32_t>(layer));
    const ValueId normed =
        rms_norm(b, x, layer_name(layer, "attention_norm.weight"), config.rms_norm_eps);
    x = b.add(x, mixer(b, c, normed, layer));
    const ValueId ffn_in =
        rms_norm(b, x, layer_name(layer, "ffn_norm.weight"), config.rms_norm_eps);
    x = b.add(x, gated_mlp(b, config, ffn_in, layer_name(layer, "feed_forward")));
    b.name(x, "hidden_states");
    // The reference's last hidden state is the one after the final norm.
    const bool last = layer + 1 == config.num_layers;
    b.probe(last ? "last_layer_prenorm" : fmt::format("hidden_states.{}", layer + 1), x);
  }
  b.set_layer(static_cast<int32_t>(config.num_layers));
  if (!options.all_logits) x = b.select(x, 1, -1);
  x = rms_norm(b, x, "norm.weight", config.rms_norm_eps);
  b.probe(fmt::format("hidden_states.{}", config.num_layers), x);
  b.output(b.linear(x, b.weight("output.weight", {config.vocab_size, config.hidden_size})),
           "logits");
  return b.finish();
}

Result<Graph> build_attention_decoder(const ModelConfig& config, const BuildOptions& options,
                                      const AttentionStyle& style) {
  return build_decoder(
      config, options, [&](GraphBuilder& b, const DecoderContext& c, ValueId x, int64_t layer) {
        const bool sliding =
            config.layer_types[static_cast<size_t>(layer)] == LayerType::kSlidingAttention;
        return attention(b, c, x, layer_name(layer, "attention"), style, sliding);
      });
}

}  // namespace ferry
