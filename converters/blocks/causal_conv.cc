#include "converters/blocks/causal_conv.h"

#include <limits>

#include "converters/blocks/axes.h"
#include "converters/blocks/blocks.h"
#include "converters/blocks/caches.h"

namespace ferry::converters {

ValueId causal_conv(GraphBuilder& b, const DecoderContext& c, ValueId x, int64_t layer,
                    int64_t channels, int64_t kernel) {
  const State past =
      state(b, c, layer, "conv_state", {batch(), features(channels), positions(kernel)});
  const ValueId columns = b.cat({b.slice(past.before, 2, 1, kernel), b.permute(x, {0, 2, 1})}, 2);
  keep(c, past,
       b.slice_into(past.buffer, columns, 2, -kernel, std::numeric_limits<int64_t>::max()));
  const ValueId weight =
      b.weight(layer_name(layer, "attention.conv1d.weight"), {features(channels), 1, kernel});
  return b.depthwise_conv1d(columns, weight);
}

}  // namespace ferry::converters
