#include "converters/blocks/delta_net.h"

#include <cmath>

#include "converters/blocks/blocks.h"
#include "converters/blocks/causal_conv.h"

// The order of nodes is part of the bytes of a program. No call here takes two arguments that
// append nodes: compilers differ in which they evaluate first.

namespace ferry::converters {
namespace {

// log(1 + exp(x)), x itself above 20 as the reference computes it.
graph::ValueId softplus(graph::GraphBuilder& b, graph::ValueId x) {
  const graph::ValueId linear = b.gt(x, 20.0);
  const graph::ValueId curved = b.log1p(b.exp(x));
  return b.where(linear, x, curved);
}

// x * rsqrt(sum(x^2) + 1e-6) over the last dimension.
graph::ValueId l2_norm(graph::GraphBuilder& b, graph::ValueId x) {
  const graph::ValueId sum = b.sum_last(b.mul(x, x));
  return b.mul(x, b.rsqrt(b.add(sum, b.scalar(1e-6F))));
}

// [1,T,heads,dim] -> [1,T,heads*groups,dim], each head `groups` times in a row.
graph::ValueId repeat_heads(graph::GraphBuilder& b, graph::ValueId x, graph::Dim tokens,
                            int64_t heads, int64_t dim, int64_t groups) {
  if (groups == 1) return x;
  const graph::ValueId wide = b.expand(b.unsqueeze(x, 3), {1, tokens, heads, groups, dim});
  return b.view(wide, {1, tokens, heads * groups, dim});
}

}  // namespace

graph::ValueId gated_delta_net(graph::GraphBuilder& b, const DecoderContext& c, graph::ValueId x,
                               int64_t layer) {
  const std::string prefix = layer_name(layer, "attention");
  const ModelConfig& g = c.config;
  const LinearAttentionConfig& lin = g.linear;
  const int64_t heads = lin.value_heads;
  const graph::ValueId mixed =
      projection(b, x, prefix + ".in_proj_qkv", g.hidden_size, lin.conv_channels(), false);
  const graph::ValueId z =
      projection(b, x, prefix + ".in_proj_z", g.hidden_size, lin.value_size(), false);
  const graph::ValueId beta_in =
      projection(b, x, prefix + ".in_proj_b", g.hidden_size, heads, false);
  const graph::ValueId alpha_in =
      projection(b, x, prefix + ".in_proj_a", g.hidden_size, heads, false);

  const graph::ValueId conv =
      causal_conv(b, c, mixed, prefix, lin.conv_channels(), lin.conv_kernel);
  const graph::ValueId convolved = b.permute(silu(b, conv), {0, 2, 1});
  const std::vector<graph::ValueId> parts =
      b.split(convolved, {lin.key_size(), lin.key_size(), lin.value_size()}, 2);
  const auto key_heads = [&](graph::ValueId part) {
    return b.view(part, {1, c.tokens, lin.key_heads, lin.key_dim});
  };
  const auto all_heads = [&](graph::ValueId part) {
    return b.permute(repeat_heads(b, part, c.tokens, lin.key_heads, lin.key_dim, lin.groups()),
                     {0, 2, 1, 3});
  };
  const double scale = 1.0 / std::sqrt(static_cast<double>(lin.key_dim));
  const graph::ValueId query = all_heads(b.mul(l2_norm(b, key_heads(parts[0])), scale));
  const graph::ValueId key = all_heads(l2_norm(b, key_heads(parts[1])));
  const graph::ValueId value =
      b.permute(b.view(parts[2], {1, c.tokens, heads, lin.value_dim}), {0, 2, 1, 3});

  // Per value head: beta in (0, 1), and the decay exp(A * softplus(a + dt_bias)) with A < 0.
  const graph::ValueId beta = b.permute(b.sigmoid(beta_in), {0, 2, 1});
  const graph::ValueId rate = softplus(b, b.add(alpha_in, b.weight(prefix + ".dt_bias", {heads})));
  const graph::ValueId decay =
      b.permute(b.exp(b.mul(rate, b.weight(prefix + ".A", {heads}))), {0, 2, 1});

  const graph::ValueId state =
      b.buffer(prefix + ".recurrent_state", DType::kF32, {1, heads, lin.key_dim, lin.value_dim});
  const graph::ValueId initial = b.where(c.is_start, b.scalar(0.0F), state);
  const graph::ValueId mixed_out =
      b.gated_delta_rule(query, key, value, decay, beta, initial, state);

  const graph::ValueId normed =
      rms_norm(b, b.permute(mixed_out, {0, 2, 1, 3}), prefix + ".norm.weight", g.rms_norm_eps);
  const graph::ValueId gate = silu(b, b.view(z, {1, c.tokens, heads, lin.value_dim}));
  const graph::ValueId out = b.view(b.mul(normed, gate), {1, c.tokens, lin.value_size()});
  return projection(b, out, prefix + ".out_proj", lin.value_size(), g.hidden_size, false);
}

}  // namespace ferry::converters
