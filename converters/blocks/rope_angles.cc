#include "converters/blocks/rope_angles.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace ferry::converters {

graph::Literal frequencies_literal(const std::string& name, const std::vector<float>& inverse) {
  std::vector<float> both;
  for (const float frequency : inverse) both.push_back(-frequency);
  both.insert(both.end(), inverse.begin(), inverse.end());
  return graph::literal_of(name + ".frequencies", std::move(both));
}

ValueId angles_by_axis(GraphBuilder& b, ValueId positions, const std::string& name,
                       const std::vector<float>& inverse, std::span<const int64_t> axes) {
  const ValueId numbers = b.to(positions, DType::kF32);
  ValueId angles;
  for (int64_t axis = 0; axis <= std::ranges::max(axes); ++axis) {
    std::vector<float> own = inverse;
    for (size_t pair = 0; pair < own.size(); ++pair) {
      if (axes[pair] != axis) own[pair] = 0.0F;
    }
    const auto dim = static_cast<int64_t>(2 * own.size());
    const ValueId frequencies =
        b.literal(DType::kF32, {1, 1, head_dim(dim)},
                  frequencies_literal(fmt::format("{}.{}", name, axis), own));
    const ValueId column = b.unsqueeze(b.unsqueeze(b.select(numbers, 0, axis), 1), 2);
    const ValueId part = b.mul(column, frequencies);
    // One of the parts is not 0, so that the sum is as exact as it.
    angles = angles.valid() ? b.add(angles, part) : part;
  }
  return angles;
}

}  // namespace ferry::converters
