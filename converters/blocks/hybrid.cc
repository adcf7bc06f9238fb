#include "converters/blocks/hybrid.h"

#include <cmath>

#include "converters/blocks/blocks.h"
#include "converters/blocks/caches.h"
#include "converters/blocks/decoder.h"
#include "converters/blocks/decoder_context.h"
#include "converters/keys/expert_keys.h"
#include "converters/keys/layout_keys.h"
#include "converters/keys/standard_keys.h"

namespace ferry::converters {
namespace {

// Returns x * rsqrt(sum(x^2) + 1e-6) over the last dimension.
ValueId l2_norm(GraphBuilder& b, ValueId x) {
  const ValueId sum = b.sum_last(b.mul(x, x));
  return b.mul(x, b.rsqrt(b.add(sum, b.scalar(1e-6F))));
}

// Repeats each head `groups` times in a row: [1,T,heads,dim] -> [1,T,heads*groups,dim].
ValueId repeat_heads(GraphBuilder& b, ValueId x, Dim tokens, int64_t count, int64_t dim,
                     int64_t groups) {
  if (groups == 1) return x;
  const ValueId wide = b.expand(b.unsqueeze(x, 3), {1, tokens, count, groups, dim});
  return b.view(wide, {batch(), tokens, heads(count * groups), head_dim(dim)});
}

// Returns [queries | keys | values] of all heads, before the convolution: [1,T,channels].
ValueId queries_keys_values(GraphBuilder& b, const ModelConfig& g, ValueId x,
                            const std::string& prefix, const DeltaNetStyle& style) {
  const LinearAttentionConfig& lin = g.linear;
  const auto projected = [&](const char* name, int64_t size) {
    return projection(b, x, prefix + name, g.hidden_size, size, false);
  };
  if (!style.apart) return projected(".in_proj_qkv", lin.conv_channels());
  return b.cat({projected(".in_proj_q", lin.key_size()), projected(".in_proj_k", lin.key_size()),
                projected(".in_proj_v", lin.value_size())},
               2);
}

}  // namespace

ValueId gated_delta_net(GraphBuilder& b, const DecoderContext& c, ValueId x, int64_t layer,
                        const DeltaNetStyle& style) {
  const std::string prefix = layer_name(layer, "attention");
  const ModelConfig& g = c.config;
  const LinearAttentionConfig& lin = g.linear;
  const int64_t count = lin.value_heads;
  const ValueId mixed = queries_keys_values(b, g, x, prefix, style);
  const ValueId z = projection(b, x, prefix + ".in_proj_z", g.hidden_size, lin.value_size(), false);
  const ValueId beta_in =
      projection(b, x, prefix + ".in_proj_b", g.hidden_size, heads(count), false);
  const ValueId alpha_in =
      projection(b, x, prefix + ".in_proj_a", g.hidden_size, heads(count), false);

  const ValueId conv = causal_conv(b, c, mixed, layer, lin.conv_channels(), lin.conv_kernel);
  const ValueId convolved = b.permute(activate(b, g.activation, conv), {0, 2, 1});
  const std::vector<ValueId> parts =
      b.split(convolved, {lin.key_size(), lin.key_size(), lin.value_size()}, 2);
  const auto key_heads = [&](ValueId part) {
    return b.view(part, {batch(), c.tokens, heads(lin.key_heads), head_dim(lin.key_dim)});
  };
  const auto all_heads = [&](ValueId part) {
    return b.permute(repeat_heads(b, part, c.tokens, lin.key_heads, lin.key_dim, lin.groups()),
                     {0, 2, 1, 3});
  };
  const double scale = 1.0 / std::sqrt(static_cast<double>(lin.key_dim));
  const ValueId query = all_heads(b.mul(l2_norm(b, key_heads(parts[0])), scale));
  const ValueId key = all_heads(l2_norm(b, key_heads(parts[1])));
  const ValueId value = b.permute(
      b.view(parts[2], {batch(), c.tokens, heads(count), head_dim(lin.value_dim)}), {0, 2, 1, 3});

  // Per value head: beta in (0, 1) or (0, 2), and the decay exp(A * softplus(a + dt_bias)) with A <
  // 0.
  const ValueId share = b.sigmoid(beta_in);
  const ValueId beta = b.permute(style.doubled ? b.mul(share, 2.0) : share, {0, 2, 1});
  const ValueId rate = softplus(b, b.add(alpha_in, b.weight(prefix + ".dt_bias", {heads(count)})));
  const ValueId decay =
      b.permute(b.exp(b.mul(rate, b.weight(prefix + ".A", {heads(count)}))), {0, 2, 1});

  const State memory =
      state(b, c, layer, "recurrent_state",
            {batch(), heads(count), head_dim(lin.key_dim), head_dim(lin.value_dim)});
  const auto [mixed_out, after] =
      b.gated_delta_rule(query, key, value, decay, beta, memory.before, memory.buffer);
  keep(c, memory, after);

  const ValueId normed = rms_norm(b, b.permute(mixed_out, {0, 2, 1, 3}), prefix + ".norm.weight",
                                  style.norm_eps.value_or(g.rms_norm_eps));
  const ValueId gate =
      silu(b, b.view(z, {batch(), c.tokens, heads(count), head_dim(lin.value_dim)}));
  const ValueId out = b.view(b.mul(normed, gate), {batch(), c.tokens, features(lin.value_size())});
  return projection(b, out, prefix + ".out_proj", lin.value_size(), g.hidden_size, false);
}

std::vector<KeyRule> hybrid_rules(const ModelConfig& config, const std::string& prefix) {
  std::vector<KeyRule> rules = concat(
      {standard_matrix_rules(prefix),
       expert_rules(prefix, config),
       shifted_norm_rules(
           prefix, {{"layers.{i}.input_layernorm.weight", "layers.{i}.attention_norm.weight"},
                    {"layers.{i}.post_attention_layernorm.weight", "layers.{i}.ffn_norm.weight"},
                    {"layers.{i}.self_attn.q_norm.weight", "layers.{i}.attention.q_norm.weight"},
                    {"layers.{i}.self_attn.k_norm.weight", "layers.{i}.attention.k_norm.weight"},
                    {"norm.weight", "norm.weight"}}),
       bias_rules(prefix, config.attention_bias, config.attention_bias, /*mlp=*/false),
       rename_rules(
           prefix,
           {{"layers.{i}.linear_attn.conv1d.weight", "layers.{i}.attention.conv1d.weight"},
            {"layers.{i}.linear_attn.dt_bias", "layers.{i}.attention.dt_bias"},
            {"layers.{i}.linear_attn.norm.weight", "layers.{i}.attention.norm.weight"},
            {"layers.{i}.linear_attn.out_proj.weight", "layers.{i}.attention.out_proj.weight"},
            {"layers.{i}.linear_attn.A_log", "layers.{i}.attention.A"}}),
       {drop_rule(prefix + "layers.{i}.linear_attn.conv1d.bias",
                  "the convolution has no bias; some exports carry an unused one")}});
  for (KeyRule& rule : rules) {
    if (rule.source.ends_with(".A_log")) {
      rule.name = "-exp(A_log)";
      rule.steps = {{.kind = graph::Step::Kind::kNegExp}};
    }
  }
  return rules;
}

std::vector<KeyRule> separate_hybrid_rules(const ModelConfig& config, const std::string& prefix) {
  return concat(
      {hybrid_rules(config, prefix),
       rename_rules(
           prefix,
           {{"layers.{i}.linear_attn.in_proj_qkv.weight",
             "layers.{i}.attention.in_proj_qkv.weight"},
            {"layers.{i}.linear_attn.in_proj_z.weight", "layers.{i}.attention.in_proj_z.weight"},
            {"layers.{i}.linear_attn.in_proj_b.weight", "layers.{i}.attention.in_proj_b.weight"},
            {"layers.{i}.linear_attn.in_proj_a.weight", "layers.{i}.attention.in_proj_a.weight"}}),
       packed_delta_net_rules(prefix, std::nullopt)});
}

Result<Methods> build_hybrid(const ModelConfig& config, const BuildOptions& options) {
  return build_mixed_decoder(config, options,
                             {.qkv_bias = config.attention_bias,
                              .output_bias = config.attention_bias,
                              .qk_norm = AttentionStyle::QkNorm::kHead,
                              .output_gate = true},
                             [](GraphBuilder& b, const DecoderContext& c, ValueId x,
                                int64_t layer) { return gated_delta_net(b, c, x, layer, {}); });
}

}  // namespace ferry::converters
