#include "media/pairwise_sum.h"

#include <cstddef>

namespace ferry::media {
namespace {

// Numbers that numpy sums in one loop, and those that it adds side by side.
constexpr size_t kPairwiseBlock = 128, kLanes = 8;

float block_sum(std::span<const float> values) {
  if (values.size() < kLanes) {
    float sum = 0.0F;
    for (const float value : values) sum += value;
    return sum;
  }
  float lanes[kLanes] = {};
  size_t i = 0;
  for (; i < kLanes; ++i) lanes[i] = values[i];
  for (; i + kLanes <= values.size(); i += kLanes) {
    for (size_t k = 0; k < kLanes; ++k) lanes[k] += values[i + k];
  }
  float sum = ((lanes[0] + lanes[1]) + (lanes[2] + lanes[3])) +
              ((lanes[4] + lanes[5]) + (lanes[6] + lanes[7]));
  for (; i < values.size(); ++i) sum += values[i];
  return sum;
}

}  // namespace

float pairwise_sum(std::span<const float> values) {
  if (values.size() <= kPairwiseBlock) return block_sum(values);
  const size_t half = values.size() / 2 / kLanes * kLanes;
  return pairwise_sum(values.first(half)) + pairwise_sum(values.subspan(half));
}

}  // namespace ferry::media
