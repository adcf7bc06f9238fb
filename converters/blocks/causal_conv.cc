#include "converters/blocks/causal_conv.h"

#include <limits>

namespace ferry::converters {

graph::ValueId causal_conv(graph::GraphBuilder& b, const DecoderContext& c, graph::ValueId x,
                           const std::string& prefix, int64_t channels, int64_t kernel) {
  const graph::ValueId state = b.buffer(prefix + ".conv_state", DType::kF32, {1, channels, kernel});
  const graph::ValueId past = b.where(c.is_start, b.scalar(0.0F), state);
  const graph::ValueId columns = b.cat({b.slice(past, 2, 1, kernel), b.permute(x, {0, 2, 1})}, 2);
  b.slice_into(state, columns, 2, -kernel, std::numeric_limits<int64_t>::max());
  const graph::ValueId weight = b.weight(prefix + ".conv1d.weight", {channels, 1, kernel});
  return b.depthwise_conv1d(columns, weight);
}

}  // namespace ferry::converters
