// Helpers of the tests of the compute kernels.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "core/highway_targets.h"
#include "core/thread_pool.h"
// This must be included after the choice of targets.
#include "hwy/targets.h"

namespace ferry::kernels {

inline constexpr float kInf = std::numeric_limits<float>::infinity();
inline constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

inline std::vector<float> random_values(size_t n, uint32_t seed = 1, float range = 1.0f) {
  std::mt19937 bits(seed);
  std::uniform_real_distribution<float> value(-range, range);
  std::vector<float> values(n);
  for (float& v : values) v = value(bits);
  return values;
}

// Calls body once for each compiled instruction set that this machine supports.
template <class Body>
void on_every_target(const Body& body) {
  const int64_t compiled = HWY_SCALAR | HWY_AVX2 | HWY_AVX3 | HWY_NEON;
  for (int64_t left = (hwy::SupportedTargets() & compiled) | HWY_SCALAR; left; left &= left - 1) {
    const int64_t target = left & -left;
    SCOPED_TRACE(hwy::TargetName(target));
    // SetSupportedTargetsForTest() has no effect here: cmake/quick_start replaces Highway's
    // library.
    hwy::GetChosenTarget().Update(target);
    body();
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  }
}

// Expects that `kernel(pool)` returns the same bits with pools of 1, 2 and 3 threads.
template <class Kernel>
void expect_same_with_any_pool(const Kernel& kernel) {
  ThreadPool one(1), two(2), three(3);
  const auto expected = kernel(one);
  EXPECT_EQ(std::memcmp(kernel(two).data(), expected.data(), expected.size() * sizeof expected[0]),
            0);
  EXPECT_EQ(
      std::memcmp(kernel(three).data(), expected.data(), expected.size() * sizeof expected[0]), 0);
}

}  // namespace ferry::kernels
