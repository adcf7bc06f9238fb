#include "converters/blocks/blocks.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>

namespace ferry::converters {

ValueId int_scalar(GraphBuilder& b, int64_t number) {
  const std::array<int64_t, 1> value = {number};
  return b.literal(DType::kI64, {},
                   {.key = fmt::format("i64:{}", number),
                    .bytes = sizeof number,
                    .fill = [value](uint64_t offset, std::span<std::byte> out) {
                      const auto bytes = std::as_bytes(std::span(value));
                      std::ranges::copy(bytes.subspan(offset, out.size()), out.begin());
                    }});
}

std::string layer_name(int64_t layer, const char* part) {
  return fmt::format("layers.{}.{}", layer, part);
}

ValueId rms_norm(GraphBuilder& b, ValueId x, const std::string& weight, double eps) {
  const Dim width = b.graph()[x].shape.back();
  const ValueId normed = bare_rms_norm(b, x, eps);
  return b.mul(normed, b.weight(weight, {width}));
}

ValueId bare_rms_norm(GraphBuilder& b, ValueId x, double eps) {
  const ValueId mean = b.mean_last(b.mul(x, x));
  const ValueId inverse = b.rsqrt(b.add(mean, b.scalar(static_cast<float>(eps))));
  return b.mul(x, inverse);
}

ValueId layer_norm(GraphBuilder& b, ValueId x, const std::string& name, double eps) {
  const Dim width = b.graph()[x].shape.back();
  const ValueId weight = b.weight(name + ".weight", {width});
  const ValueId bias = b.weight(name + ".bias", {width});
  return b.layer_norm(x, weight, bias, eps);
}

ValueId norm(GraphBuilder& b, NormKind kind, ValueId x, const std::string& name, double eps) {
  switch (kind) {
    case NormKind::kRms:
      return rms_norm(b, x, name + ".weight", eps);
    case NormKind::kLayer:
      return layer_norm(b, x, name, eps);
    case NormKind::kLayerNoBias:
      return b.layer_norm(x, b.weight(name + ".weight", {b.graph()[x].shape.back()}), {}, eps);
    case NormKind::kRmsBare:
      return bare_rms_norm(b, x, eps);
    case NormKind::kLayerBare:
      break;
  }
  return b.layer_norm(x, {}, {}, eps);
}

ValueId projection(GraphBuilder& b, ValueId x, const std::string& name, int64_t in, Dim out,
                   bool bias) {
  if (out.axis == graph::Axis::kNone) out = features(out);
  const ValueId y = b.linear(x, b.weight(name + ".weight", {out, features(in)}));
  return bias ? b.add(y, b.weight(name + ".bias", {out})) : y;
}

ValueId rounded_inputs(GraphBuilder& b, const ModelConfig& config, ValueId x) {
  if (config.number(kRoundedInputs) == 0) return x;
  constexpr double kMost = std::numeric_limits<float>::max();
  const ValueId opposite = b.mul(x, -1.0);
  const ValueId below = b.relu(opposite), above = b.relu(x);
  const ValueId least = b.clamp(b.amin_last(b.mul(b.add(above, below), -1.0)), -kMost, -1e-5);
  const ValueId scale = b.div(b.scalar(-127.0F), least);
  const ValueId codes = b.quantize(b.mul(x, scale), 1.0, 0, DType::kI8);
  return b.div(b.dequantize(codes, 1.0, 0), scale);
}

ValueId silu(GraphBuilder& b, ValueId x) { return b.mul(x, b.sigmoid(x)); }

ValueId softplus(GraphBuilder& b, ValueId x) {
  const ValueId linear = b.gt(x, 20.0);
  const ValueId curved = b.log1p(b.exp(x));
  return b.where(linear, x, curved);
}

// CLIP scales the input of the sigmoid that stands for the normal distribution by this.
constexpr double kQuickGeluScale = 1.702;

ValueId activate(GraphBuilder& b, Activation activation, ValueId x) {
  switch (activation) {
    case Activation::kGelu:
      return b.gelu(x, "none");
    case Activation::kGeluTanh:
      return b.gelu(x, "tanh");
    case Activation::kRelu:
      return b.relu(x);
    case Activation::kRelu2: {
      const ValueId positive = b.relu(x);
      return b.mul(positive, positive);
    }
    case Activation::kQuickGelu:
      return b.mul(x, b.sigmoid(b.mul(x, kQuickGeluScale)));
    case Activation::kSilu:
      break;
  }
  return silu(b, x);
}

ValueId softcap(GraphBuilder& b, ValueId x, double cap) {
  return b.mul(b.tanh(b.mul(x, 1.0 / cap)), cap);
}

ValueId gated_mlp(GraphBuilder& b, const ModelConfig& g, ValueId x, const std::string& prefix,
                  int64_t size) {
  x = rounded_inputs(b, g, x);
  ValueId gate = projection(b, x, prefix + ".w1", g.hidden_size, size, g.mlp_bias);
  if (g.scalars.mlp_gate != 1.0) gate = b.mul(gate, g.scalars.mlp_gate);
  const ValueId up = projection(b, x, prefix + ".w3", g.hidden_size, size, g.mlp_bias);
  ValueId inner = b.mul(activate(b, g.activation, gate), up);
  if (g.number(kMlpNorm) != 0) inner = rms_norm(b, inner, prefix + ".norm.weight", g.rms_norm_eps);
  const ValueId out =
      projection(b, rounded_inputs(b, g, inner), prefix + ".w2", size, g.hidden_size, g.mlp_bias);
  return g.scalars.mlp_out == 1.0 ? out : b.mul(out, g.scalars.mlp_out);
}

ValueId plain_mlp(GraphBuilder& b, const ModelConfig& g, ValueId x, const std::string& prefix,
                  bool bias, int64_t size) {
  if (size == 0) size = g.intermediate_size;
  const ValueId wide = projection(b, x, prefix + ".w1", g.hidden_size, size, bias);
  return projection(b, activate(b, g.activation, wide), prefix + ".w2", size, g.hidden_size, bias);
}

}  // namespace ferry::converters
