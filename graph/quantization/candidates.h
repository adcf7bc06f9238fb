// The scales that search_scales tries, as the largest magnitude of a group divided by a number of
// steps. They were chosen by measurement on values of a normal and of a Student's t(5)
// distribution, as the best of all sets of this form. Twice as many candidates gain 0.02 dB with
// groups of 32 and 64, 0.01 dB with groups of 128, and nothing with rows of 1024.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace ferry::graph {

inline constexpr size_t kMultipliers = 4;

// Steps are fraction / 32768 * multiplier, for each multiplier.
struct Steps {
  int16_t fraction;
  int16_t multipliers[kMultipliers];
};

struct Candidates {
  int16_t low, high;  // the range of the codes
  size_t tile;        // number of elements whose products add up to less than 2^31
  std::span<const Steps> steps;
};

// Counts the multipliers, which ascend: `free` of them give codes within the range for every value,
// and the next `above` can exceed the upper limit only. A value is at most 32767.
struct Unclamped {
  size_t free = 0, above = 0;
  bool operator==(const Unclamped&) const = default;
};
constexpr Unclamped unclamped(const Candidates& set, const Steps& steps) {
  const auto product = [](int32_t a, int32_t b) { return (a * b + 0x4000) >> 15; };
  Unclamped count;
  for (const int16_t multiplier : steps.multipliers) {
    const int32_t reach = product(product(32767, steps.fraction), multiplier);
    if (reach <= set.high) {
      ++count.free;
    } else if (reach <= -set.low) {
      ++count.above;
    }
  }
  return count;
}

// The more values share a scale, the more clipping of the largest values pays.
inline constexpr Steps kSteps4[] = {{29491, {7, 8, 9, 10}}, {27853, {7, 8, 9, 10}}};
inline constexpr Steps kSteps4Of128[] = {{27853, {9, 10, 11, 12}}, {26542, {9, 10, 11, 12}}};
inline constexpr Steps kSteps4OfRows[] = {{32767, {11, 13, 15, 17}}, {30802, {10, 11, 12, 13}}};
inline constexpr Steps kSteps8[] = {{32767, {124, 126, 128, 130}}, {32767, {125, 127, 129, 131}}};

// A product is at most 32767 * 2^(bits - 1) for each element.
inline constexpr Candidates kCandidates4{-8, 7, 4096, kSteps4};
inline constexpr Candidates kCandidates4Of128{-8, 7, 4096, kSteps4Of128};
inline constexpr Candidates kCandidates4OfRows{-8, 7, 4096, kSteps4OfRows};
inline constexpr Candidates kCandidates8{-128, 127, 256, kSteps8};

constexpr const Candidates& candidates(int bits, size_t group) {
  if (bits == 8) return kCandidates8;
  return group <= 64 ? kCandidates4 : group <= 256 ? kCandidates4Of128 : kCandidates4OfRows;
}

}  // namespace ferry::graph
