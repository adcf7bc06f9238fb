// Scales that search_scales tries, as the largest magnitude of a group divided by a number of
// steps. Chosen by measurement on values of a normal and of a Student's t(5) distribution: four
// times as many gain 0.002 dB with groups of 32, 0.005 dB with groups of 128 and 0.03 dB with rows
// of 1024.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace ferry::graph {

inline constexpr size_t kMultipliers = 4;

// fraction / 32768 * multiplier steps, for each multiplier.
struct Steps {
  int16_t fraction;
  int16_t multipliers[kMultipliers];
};

struct Candidates {
  int16_t low, high;  // of the codes
  size_t tile;        // elements whose products add up to less than 2^31
  std::span<const Steps> steps;
};

// The more values share a scale, the more of the largest are worth clipping.
inline constexpr Steps kSteps4[] = {
    {32767, {6, 7, 8, 9}}, {31700, {7, 8, 9, 10}}, {30700, {6, 7, 8, 9}}, {29700, {7, 8, 9, 10}}};
inline constexpr Steps kSteps4Of128[] = {{32767, {8, 9, 10, 11}},
                                         {31700, {8, 9, 10, 11}},
                                         {30700, {8, 9, 10, 11}},
                                         {29700, {8, 9, 10, 11}}};
inline constexpr Steps kSteps4OfRows[] = {{32767, {7, 8, 9, 10}},
                                          {32767, {11, 12, 13, 14}},
                                          {32767, {16, 18, 20, 22}},
                                          {32767, {25, 28, 32, 36}}};
inline constexpr Steps kSteps8[] = {{32767, {114, 116, 118, 120}},
                                    {32767, {122, 123, 124, 125}},
                                    {32767, {126, 127, 128, 129}},
                                    {32767, {130, 131, 132, 134}}};

// At most 32767 * 2^(bits - 1) for each element.
inline constexpr Candidates kCandidates4{-8, 7, 4096, kSteps4};
inline constexpr Candidates kCandidates4Of128{-8, 7, 4096, kSteps4Of128};
inline constexpr Candidates kCandidates4OfRows{-8, 7, 4096, kSteps4OfRows};
inline constexpr Candidates kCandidates8{-128, 127, 256, kSteps8};

constexpr const Candidates& candidates(int bits, size_t group) {
  if (bits == 8) return kCandidates8;
  return group <= 64 ? kCandidates4 : group <= 256 ? kCandidates4Of128 : kCandidates4OfRows;
}

}  // namespace ferry::graph
