// Every compute kernel against a naive twin in double, on every instruction set of this machine,
// with pools of 1, 2 and 3 threads that must agree to the bit.
#include "runner/kernels/compute.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "runner/kernels/compute_targets.h"
// After the choice of targets.
#include "hwy/targets.h"

namespace ferry::kernels {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

std::vector<float> random_values(size_t n, uint32_t seed = 1, float range = 1.0f) {
  std::mt19937 bits(seed);
  std::uniform_real_distribution<float> value(-range, range);
  std::vector<float> values(n);
  for (float& v : values) v = value(bits);
  return values;
}

// Calls body once for each instruction set that is compiled in and that this machine has.
template <class Body>
void on_every_target(const Body& body) {
  const int64_t compiled = HWY_SCALAR | HWY_SSE4 | HWY_AVX2 | HWY_AVX3 | HWY_NEON;
  for (int64_t left = (hwy::SupportedTargets() & compiled) | HWY_SCALAR; left; left &= left - 1) {
    const int64_t target = left & -left;
    SCOPED_TRACE(hwy::TargetName(target));
    hwy::SetSupportedTargetsForTest(target);
    body();
    hwy::SetSupportedTargetsForTest(0);
  }
}

// Values stored as dtype, and what they are after rounding.
struct Stored {
  std::vector<char> bytes;
  std::vector<float> values;
};
Stored stored(DType dtype, const std::vector<float>& values) {
  Stored s{std::vector<char>(values.size() * dtype_bytes(dtype)), values};
  for (size_t i = 0; i < values.size(); ++i) {
    if (dtype == DType::kF32) {
      std::memcpy(&s.bytes[i * 4], &values[i], 4);
      continue;
    }
    const bool half = dtype == DType::kF16;
    const uint16_t bits = half ? f32_to_f16(values[i]) : f32_to_bf16(values[i]);
    std::memcpy(&s.bytes[i * 2], &bits, 2);
    s.values[i] = half ? f16_to_f32(bits) : bf16_to_f32(bits);
  }
  return s;
}
float value_at(DType dtype, const std::vector<char>& bytes, size_t i) {
  float f;
  uint16_t bits;
  if (dtype == DType::kF32) return std::memcpy(&f, &bytes[i * 4], 4), f;
  std::memcpy(&bits, &bytes[i * 2], 2);
  return dtype == DType::kF16 ? f16_to_f32(bits) : bf16_to_f32(bits);
}
double unit_roundoff(DType dtype) {
  return dtype == DType::kF32 ? 0x1p-24 : dtype == DType::kF16 ? 0x1p-11 : 0x1p-8;
}

// The first index where the pools disagree, or -1. Runs `kernel(pool)` -> bytes with 1, 2, 3.
template <class Kernel>
void expect_same_with_any_pool(const Kernel& kernel) {
  ThreadPool one(1), two(2), three(3);
  const auto expected = kernel(one);
  EXPECT_EQ(std::memcmp(kernel(two).data(), expected.data(), expected.size() * sizeof expected[0]),
            0);
  EXPECT_EQ(
      std::memcmp(kernel(three).data(), expected.data(), expected.size() * sizeof expected[0]), 0);
}

struct LinearCase {
  int64_t m, n, k;
};
const LinearCase kLinearCases[] = {
    {1, 1, 1},    {1, 3, 17},    {1, 17, 63},   {1, 64, 64},   {1, 65, 257},   {1, 9, 1040},
    {2, 1, 3},    {3, 7, 15},    {4, 6, 16},    {5, 13, 65},   {7, 25, 257},   {17, 63, 64},
    {63, 31, 17}, {129, 26, 48}, {6, 50, 1025}, {5, 29, 2100}, {130, 7, 3072}, {1, 300, 5},
};

std::vector<char> run_linear(DType dtype, const Stored& x, const void* w, const LinearCase& c,
                             ThreadPool& pool) {
  std::vector<char> out(c.m * c.n * dtype_bytes(dtype));
  linear(dtype, x.bytes.data(), w, out.data(), c.m, c.n, c.k, pool);
  return out;
}

class LinearTest : public testing::TestWithParam<DType> {};

// Tolerance: 4 units of f32 of the sum of magnitudes, and one rounding to dtype.
TEST_P(LinearTest, MatchesDoubleOnEveryTarget) {
  ThreadPool pool(2);
  on_every_target([&] {
    for (const LinearCase& c : kLinearCases) {
      const Stored x = stored(GetParam(), random_values(c.m * c.k, 1));
      const Stored w = stored(GetParam(), random_values(c.n * c.k, 2));
      const auto out = run_linear(GetParam(), x, w.bytes.data(), c, pool);
      for (int64_t i = 0; i < c.m; ++i) {
        for (int64_t j = 0; j < c.n; ++j) {
          double sum = 0, size = 0;
          for (int64_t p = 0; p < c.k; ++p) {
            const double term = double(x.values[i * c.k + p]) * w.values[j * c.k + p];
            sum += term;
            size += std::abs(term);
          }
          const double bound =
              0x1p-22 * size + unit_roundoff(GetParam()) * 1.01 * std::abs(sum) + 1e-7;
          ASSERT_NEAR(value_at(GetParam(), out, i * c.n + j), sum, bound)
              << c.m << "x" << c.n << "x" << c.k << " at " << i << "," << j;
        }
      }
    }
  });
}

TEST_P(LinearTest, RowOfABatchHasTheBitsItHasAlone) {
  ThreadPool pool(2);
  on_every_target([&] {
    for (const LinearCase& c : kLinearCases) {
      const Stored x = stored(GetParam(), random_values(c.m * c.k, 3));
      const Stored w = stored(GetParam(), random_values(c.n * c.k, 4));
      const auto batch = run_linear(GetParam(), x, w.bytes.data(), c, pool);
      std::vector<char> row(c.n * dtype_bytes(GetParam()));
      for (int64_t i = 0; i < c.m; ++i) {
        linear(GetParam(), &x.bytes[i * c.k * dtype_bytes(GetParam())], w.bytes.data(), row.data(),
               1, c.n, c.k, pool);
        ASSERT_EQ(std::memcmp(row.data(), &batch[i * row.size()], row.size()), 0)
            << c.m << "x" << c.n << "x" << c.k << " row " << i;
      }
    }
  });
}

TEST_P(LinearTest, SameBitsWithAnyPool) {
  for (const LinearCase& c : {LinearCase{1, 3000, 257}, LinearCase{9, 301, 2100}}) {
    const Stored x = stored(GetParam(), random_values(c.m * c.k, 5));
    const Stored w = stored(GetParam(), random_values(c.n * c.k, 6));
    expect_same_with_any_pool(
        [&](ThreadPool& pool) { return run_linear(GetParam(), x, w.bytes.data(), c, pool); });
  }
}

TEST_P(LinearTest, TakesWeightsAtAnyAddress) {
  ThreadPool pool(2);
  on_every_target([&] {
    for (const LinearCase& c : {LinearCase{1, 19, 67}, LinearCase{6, 19, 67}}) {
      const Stored x = stored(GetParam(), random_values(c.m * c.k, 7));
      const Stored w = stored(GetParam(), random_values(c.n * c.k, 8));
      const auto expected = run_linear(GetParam(), x, w.bytes.data(), c, pool);
      std::vector<char> moved(w.bytes.size() + 1);
      std::copy(w.bytes.begin(), w.bytes.end(), moved.begin() + 1);
      EXPECT_EQ(run_linear(GetParam(), x, moved.data() + 1, c, pool), expected);
    }
  });
}

TEST_P(LinearTest, NothingToSumGivesZero) {
  ThreadPool pool(2);
  const LinearCase c{3, 5, 0};
  std::vector<char> out(c.m * c.n * dtype_bytes(GetParam()), 1);
  linear(GetParam(), nullptr, nullptr, out.data(), c.m, c.n, c.k, pool);
  EXPECT_EQ(out, std::vector<char>(out.size(), 0));
}

INSTANTIATE_TEST_SUITE_P(DTypes, LinearTest,
                         testing::Values(DType::kF32, DType::kBF16, DType::kF16),
                         [](const auto& test) { return std::string(dtype_name(test.param)); });

}  // namespace
}  // namespace ferry::kernels
