#include "converters/blocks/short_conv.h"

#include "converters/blocks/blocks.h"
#include "converters/blocks/causal_conv.h"

// The order of nodes is part of the bytes of a program. No call here takes two arguments that
// append nodes: compilers differ in which they evaluate first.

namespace ferry::converters {

graph::ValueId short_conv(graph::GraphBuilder& b, const DecoderContext& c, graph::ValueId x,
                          int64_t layer) {
  const std::string prefix = layer_name(layer, "attention");
  const int64_t width = c.config.hidden_size;
  const ShortConvConfig& conv = c.config.short_conv;
  const graph::ValueId mixed = projection(b, x, prefix + ".in_proj", width, 3 * width, conv.bias);
  const std::vector<graph::ValueId> parts = b.split(mixed, {width, width, width}, 2);
  const graph::ValueId gated = b.mul(parts[0], parts[2]);
  graph::ValueId y = b.permute(causal_conv(b, c, gated, prefix, width, conv.kernel), {0, 2, 1});
  if (conv.bias) y = b.add(y, b.weight(prefix + ".conv1d.bias", {width}));
  return projection(b, b.mul(parts[1], y), prefix + ".out_proj", width, width, conv.bias);
}

}  // namespace ferry::converters
