#include "converters/blocks/short_conv.h"

#include "converters/blocks/axes.h"
#include "converters/blocks/blocks.h"
#include "converters/blocks/causal_conv.h"

namespace ferry::converters {

ValueId short_conv(GraphBuilder& b, const DecoderContext& c, ValueId x, int64_t layer) {
  const std::string prefix = layer_name(layer, "attention");
  const int64_t width = c.config.hidden_size;
  const bool bias = c.config.number(kConvBias) != 0;
  const ValueId mixed = projection(b, x, prefix + ".in_proj", width, 3 * width, bias);
  const std::vector<ValueId> parts = b.split(mixed, {width, width, width}, 2);
  const ValueId gated = b.mul(parts[0], parts[2]);
  ValueId y =
      b.permute(causal_conv(b, c, gated, layer, width, c.config.number(kConvKernel)), {0, 2, 1});
  if (bias) y = b.add(y, b.weight(prefix + ".conv1d.bias", {features(width)}));
  return projection(b, b.mul(parts[1], y), prefix + ".out_proj", width, width, bias);
}

}  // namespace ferry::converters
