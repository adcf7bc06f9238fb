#include "converters/blocks/rg_lru.h"

#include "converters/blocks/blocks.h"
#include "converters/blocks/caches.h"
#include "converters/blocks/static_ports.h"
#include "converters/keys/standard_keys.h"

namespace ferry::converters {
namespace {

// As in blocks/selective_scan.cc: with a beta that is this small, and a value that is larger by as
// much, the delta rule is the recurrence S' = G S + x.
constexpr double kTinyBeta = 0x1p-40, kHugeValue = 0x1p40;
// The factor of the logarithm of the decay.
constexpr double kDecayFactor = -8.0;
// Below all values of 1 - a^2 but 0.
constexpr double kLeastRest = 1e-30;

// Returns sigmoid(x w + bias), where each head has a matrix of its own: x and the result
// [1,T,channels].
ValueId gate(GraphBuilder& b, const DecoderContext& c, ValueId x, const std::string& name) {
  const int64_t channels = c.config.number(kLruWidth), count = c.config.num_heads;
  const int64_t width = channels / count;
  const ValueId weight =
      b.weight_f32(name + ".weight", {heads(count), features(width), features(width)});
  const ValueId bias = b.weight_f32(name + ".bias", {heads(count), features(width)});
  const ValueId by_head =
      b.permute(b.view(x, {c.tokens, heads(count), features(width)}), {1, 0, 2});
  const ValueId turned = b.permute(b.bmm(by_head, weight), {1, 0, 2});
  return b.sigmoid(b.view(b.add(turned, bias), {batch(), c.tokens, features(channels)}));
}

// Returns whether a token is the first one of its sequence: bool [T,1], in a static program
// [1,T,1].
ValueId is_first_token(GraphBuilder& b, const DecoderContext& c) {
  const ValueId at = c.ports != nullptr ? c.ports->input_pos() : call_positions(b, c);
  return b.unsqueeze(b.eq(at, 0), -1);
}

// Returns the states behind every token, [1,T,channels], of inputs and decays of that shape.
ValueId recurrence(GraphBuilder& b, const DecoderContext& c, ValueId input, ValueId decay,
                   int64_t layer) {
  const Dim width = features(c.config.number(kLruWidth));
  const Dims wide = {batch(), width, c.tokens, 1};
  const auto by_channel = [&](ValueId x) { return b.view(b.permute(x, {0, 2, 1}), wide); };
  const ValueId values = by_channel(b.mul(input, kHugeValue));
  const ValueId decays = by_channel(decay);
  const ValueId one = b.expand(b.view(b.scalar(1.0F), {1, 1, 1, 1}), wide);
  const ValueId beta = b.expand(b.view(b.scalar(static_cast<float>(kTinyBeta)), {1, 1, 1}),
                                {batch(), width, c.tokens});
  const State memory = state(b, c, layer, "recurrent_state", {batch(), width, 1, 1});
  const auto [read, after] =
      b.gated_delta_rule(one, one, values, decays, beta, memory.before, memory.buffer);
  keep(c, memory, after);
  return b.permute(b.view(read, {batch(), width, c.tokens}), {0, 2, 1});
}

}  // namespace

std::vector<KeyRule> rg_lru_rules(const std::string& block) {
  return concat(
      {parameter_rules(block, /*bias=*/true,
                       {{"linear_y", "layers.{i}.attention.gate_proj"},
                        {"linear_x", "layers.{i}.attention.in_proj"},
                        {"linear_out", "layers.{i}.attention.out_proj"},
                        {"conv_1d", "layers.{i}.attention.conv1d"}}),
       rename_rules(block,
                    {{"rg_lru.recurrent_param", "layers.{i}.attention.decay"},
                     {"rg_lru.input_gate_weight", "layers.{i}.attention.input_gate.weight"},
                     {"rg_lru.input_gate_bias", "layers.{i}.attention.input_gate.bias"},
                     {"rg_lru.recurrent_gate_weight", "layers.{i}.attention.recurrent_gate.weight"},
                     {"rg_lru.recurrent_gate_bias", "layers.{i}.attention.recurrent_gate.bias"}})});
}

ValueId rg_lru(GraphBuilder& b, const DecoderContext& c, ValueId x, int64_t layer) {
  const ModelConfig& g = c.config;
  const std::string prefix = layer_name(layer, "attention");
  const int64_t channels = g.number(kLruWidth);
  const Dim width = features(channels);
  const ValueId side =
      activate(b, g.activation,
               projection(b, x, prefix + ".gate_proj", g.hidden_size, width, /*bias=*/true));
  const ValueId in = projection(b, x, prefix + ".in_proj", g.hidden_size, width, /*bias=*/true);
  const ValueId mixed = causal_conv(b, c, in, layer, channels, g.number(kLruKernel));
  const ValueId bias = b.weight(prefix + ".conv1d.bias", {width});
  const ValueId inner = b.add(b.permute(mixed, {0, 2, 1}), bias);

  const ValueId rate = softplus(b, b.weight_f32(prefix + ".decay", {width}));
  const ValueId paced = b.mul(gate(b, c, inner, prefix + ".recurrent_gate"), rate);
  const ValueId logarithm = b.mul(paced, kDecayFactor);
  const ValueId square = b.exp(b.mul(logarithm, 2.0));
  const ValueId one = b.scalar(1.0F);
  const ValueId rest = b.sub(one, square);
  const ValueId root = b.mul(rest, b.rsqrt(b.clamp(rest, kLeastRest, 1.0)));
  const ValueId factor = b.where(is_first_token(b, c), one, root);
  const ValueId gated = b.mul(inner, gate(b, c, inner, prefix + ".input_gate"));
  const ValueId input = b.mul(gated, factor);
  const ValueId states = recurrence(b, c, input, b.exp(logarithm), layer);
  return projection(b, b.mul(states, side), prefix + ".out_proj", channels, g.hidden_size,
                    /*bias=*/true);
}

}  // namespace ferry::converters
