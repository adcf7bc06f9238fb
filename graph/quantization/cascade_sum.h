// The f32 sum of consecutive values in the order of torch.sum over the innermost dimension (CPU):
// value i goes to partial sum i mod 32, where long rows are added in blocks of 16 and more; what
// is left after the last whole 8 is added first.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <span>

namespace ferry::graph {

inline float cascade_sum(std::span<const float> values) {
  constexpr size_t kLanes = 8, kSums = 32, kLevels = 4;
  const size_t rounds = values.size() / kSums;
  const size_t log2 = rounds > 1 ? static_cast<size_t>(std::bit_width(rounds - 1)) : 0;
  const size_t power = std::max<size_t>(4, log2 / kLevels);
  const size_t mask = (size_t{1} << power) - 1;
  std::array<std::array<float, kSums>, kLevels> sums{};
  const auto carry = [&](size_t level) {
    for (size_t s = 0; s < kSums; ++s) sums[level][s] += sums[level - 1][s];
  };
  for (size_t r = 0; r < rounds; ++r) {
    for (size_t s = 0; s < kSums; ++s) sums[0][s] += values[r * kSums + s];
    for (size_t level = 1; level < kLevels && ((r + 1) >> ((level - 1) * power) & mask) == 0;
         ++level) {
      carry(level);
      sums[level - 1].fill(0);
    }
  }
  for (size_t level = 1; level < kLevels; ++level) {
    for (size_t s = 0; s < kSums; ++s) sums[0][s] += sums[level][s];
  }
  size_t i = rounds * kSums;
  for (; i + kLanes <= values.size(); i += kLanes) {
    for (size_t s = 0; s < kLanes; ++s) sums[0][s] += values[i + s];
  }
  float sum = 0;
  for (; i < values.size(); ++i) sum += values[i];
  for (size_t s = 0; s < kLanes; ++s) {
    sum += ((sums[0][s] + sums[0][s + 8]) + sums[0][s + 16]) + sums[0][s + 24];
  }
  return sum;
}

}  // namespace ferry::graph
