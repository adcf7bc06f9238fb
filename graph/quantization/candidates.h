// Scales that search_scales tries, as the largest magnitude of a group divided by a number of
// steps. Chosen by measurement (normal and Student's t(5) values, groups of 32 to 4096): more of
// them gain less than 0.01 dB.
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

inline constexpr Steps kSteps4[] = {{32767, {7, 8, 9, 10}},
                                    {32000, {7, 8, 9, 10}},
                                    {31200, {7, 8, 9, 10}},
                                    {30400, {7, 8, 9, 10}},
                                    {29600, {7, 8, 9, 10}}};
inline constexpr Steps kSteps8[] = {{32767, {114, 116, 118, 120}},
                                    {32767, {122, 123, 124, 125}},
                                    {32767, {126, 127, 128, 129}},
                                    {32767, {130, 131, 132, 134}}};

// At most 32767 * 2^(bits - 1) for each element.
inline constexpr Candidates kCandidates4{-8, 7, 4096, kSteps4};
inline constexpr Candidates kCandidates8{-128, 127, 256, kSteps8};

}  // namespace ferry::graph
