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

// Distance in units of the last place of f32, of `actual` from a value known in double.
double ulps(float actual, double expected) {
  const float nearest = static_cast<float>(expected);
  if (std::isinf(nearest) || std::isinf(actual)) return nearest == actual ? 0 : 1e9;
  const double unit = std::max(std::abs(std::nextafter(nearest, kInf) - double(nearest)), 0x1p-149);
  return std::abs(double(actual) - expected) / unit;
}

const int64_t kLengths[] = {0, 1, 3, 4, 15, 16, 17, 63, 64, 65, 257};

TEST(ElementwiseTest, AddAndMulRoundOnceAndMayWriteOverAnInput) {
  on_every_target([] {
    for (const int64_t n : kLengths) {
      const auto a = random_values(n, 1, 100), b = random_values(n, 2, 100);
      std::vector<float> sum = a, product = b;
      add_f32(sum.data(), b.data(), sum.data(), n);
      mul_f32(a.data(), product.data(), product.data(), n);
      for (int64_t i = 0; i < n; ++i) {
        ASSERT_EQ(sum[i], a[i] + b[i]);
        ASSERT_EQ(product[i], a[i] * b[i]);
      }
    }
  });
}

// From where e^x is below the smallest subnormal to where it is above the largest f32.
std::vector<float> exponents() {
  std::vector<float> x;
  for (float v = -110; v < 95; v += 0.00731f) x.push_back(v);
  for (const float v : random_values(20000, 9, 1.0f)) x.push_back(v);
  for (const float v : random_values(2000, 9, 1e-6f)) x.push_back(v);
  for (const float v : {0.0f, -0.0f, 88.72283f, 88.72284f, -87.33655f, -103.97f}) x.push_back(v);
  return x;
}

TEST(ElementwiseTest, ExpIsWithinOneUlp) {
  on_every_target([] {
    const auto x = exponents();
    std::vector<float> y(x.size());
    exp_f32(x.data(), y.data(), static_cast<int64_t>(x.size()));
    for (size_t i = 0; i < x.size(); ++i) {
      ASSERT_LE(ulps(y[i], std::exp(double(x[i]))), 1.0) << "exp(" << x[i] << ") = " << y[i];
    }
  });
}

TEST(ElementwiseTest, SigmoidIsWithinTwoUlp) {
  on_every_target([] {
    const auto x = exponents();
    std::vector<float> y(x.size());
    sigmoid_f32(x.data(), y.data(), static_cast<int64_t>(x.size()));
    for (size_t i = 0; i < x.size(); ++i) {
      ASSERT_LE(ulps(y[i], 1 / (1 + std::exp(-double(x[i])))), 2.0) << "at " << x[i];
    }
  });
}

TEST(ElementwiseTest, ExpAndSigmoidOfSpecialValues) {
  on_every_target([] {
    for (const int64_t n : {1, 16}) {
      std::vector<float> x(n, kNan), y(n);
      exp_f32(x.data(), y.data(), n);
      EXPECT_TRUE(std::isnan(y.back()));
      sigmoid_f32(x.data(), y.data(), n);
      EXPECT_TRUE(std::isnan(y.back()));
      for (const float v : {-kInf, kInf, -1e30f, 1e30f}) {
        x.assign(n, v);
        exp_f32(x.data(), y.data(), n);
        EXPECT_EQ(y.back(), v < 0 ? 0 : kInf);
        sigmoid_f32(x.data(), y.data(), n);
        EXPECT_EQ(y.back(), v < 0 ? 0 : 1);
      }
    }
  });
}

// f32 values around every rounding boundary of 16 bits, and the special ones.
std::vector<float> hard_to_round() {
  std::vector<float> values;
  for (const float v : random_values(5000, 10, 70000)) values.push_back(v);
  for (uint32_t high = 0; high < 0x10000; high += 7) {
    for (const uint32_t low : {0x0u, 0x1u, 0xfffu, 0x1000u, 0x1001u, 0x7fffu, 0x8000u, 0x8001u}) {
      const uint32_t bits = high << 16 | low;
      float v;
      std::memcpy(&v, &bits, sizeof v);
      values.push_back(v);
    }
  }
  return values;
}

TEST(CastTest, To16BitsRoundsAsTheScalarConversion) {
  const auto values = hard_to_round();
  on_every_target([&] {
    for (const DType to : {DType::kF16, DType::kBF16}) {
      std::vector<uint16_t> bits(values.size());
      cast(DType::kF32, values.data(), to, bits.data(), static_cast<int64_t>(values.size()));
      for (size_t i = 0; i < values.size(); ++i) {
        const bool half = to == DType::kF16;
        if (std::isnan(values[i])) {
          ASSERT_TRUE(std::isnan(half ? f16_to_f32(bits[i]) : bf16_to_f32(bits[i]))) << values[i];
        } else {
          ASSERT_EQ(bits[i], half ? f32_to_f16(values[i]) : f32_to_bf16(values[i])) << values[i];
        }
      }
    }
  });
}

TEST(CastTest, From16BitsIsExactForEveryValue) {
  std::vector<uint16_t> bits(0x10000);
  for (size_t i = 0; i < bits.size(); ++i) bits[i] = static_cast<uint16_t>(i);
  on_every_target([&] {
    for (const DType from : {DType::kF16, DType::kBF16}) {
      std::vector<float> values(bits.size());
      cast(from, bits.data(), DType::kF32, values.data(), static_cast<int64_t>(bits.size()));
      for (size_t i = 0; i < bits.size(); ++i) {
        const float v = from == DType::kF16 ? f16_to_f32(bits[i]) : bf16_to_f32(bits[i]);
        if (std::isnan(v)) {
          ASSERT_TRUE(std::isnan(values[i])) << i;
        } else {
          ASSERT_EQ(std::memcmp(&values[i], &v, sizeof v), 0) << i;
        }
      }
    }
  });
}

TEST(CastTest, EveryPairAndLengthAgreesWithTheScalarConversion) {
  const DType types[] = {DType::kF32, DType::kF16, DType::kBF16};
  on_every_target([&] {
    for (const DType from : types) {
      for (const DType to : types) {
        for (const int64_t n : kLengths) {
          const Stored a = stored(from, random_values(n, 11, 10));
          std::vector<char> out(n * dtype_bytes(to));
          cast(from, a.bytes.data(), to, out.data(), n);
          ASSERT_EQ(out, stored(to, a.values).bytes);
        }
      }
    }
  });
}

TEST(SumTest, SameBitsOnEveryTarget) {
  for (const int64_t n : {0, 1, 3, 17, 63, 64, 65, 257, 4096, 5000}) {
    const auto a = random_values(n, 12);
    double expected = 0;
    for (const float v : a) expected += v;
    const float sum = sum_f32(a.data(), n);
    EXPECT_NEAR(sum, expected, 1e-6 * static_cast<double>(n));
    on_every_target([&] { EXPECT_EQ(sum_f32(a.data(), n), sum); });
  }
}

// Tolerance: the difference from the maximum, up to 60 here, is rounded before exp.
TEST(SoftmaxTest, MatchesDouble) {
  on_every_target([] {
    for (const int64_t n : {1, 3, 16, 17, 63, 65, 257, 1000}) {
      auto a = random_values(n, 13, 30);
      if (n > 3) a[n - 1] = -kInf;
      const float top = *std::max_element(a.begin(), a.end());
      double total = 0;
      for (const float v : a) total += std::exp(double(v) - top);
      std::vector<float> out = a;
      softmax_row_f32(out.data(), out.data(), n);
      for (int64_t i = 0; i < n; ++i) {
        const double expected = std::exp(double(a[i]) - top) / total;
        ASSERT_NEAR(out[i], expected, 5e-6 * expected + 1e-40);
      }
    }
  });
}

TEST(SoftmaxTest, NothingButMinusInfinityIsNan) {
  on_every_target([] {
    std::vector<float> a(17, -kInf);
    softmax_row_f32(a.data(), a.data(), 17);
    EXPECT_TRUE(std::isnan(a[0]) && std::isnan(a[16]));
  });
}

struct ConvCase {
  int64_t channels, length, kernel;
};

TEST(ConvTest, MatchesDoubleWithAnyPool) {
  for (const ConvCase& c : {ConvCase{1, 1, 1},
                            {3, 4, 4},
                            {35, 4, 4},
                            {64, 4, 4},
                            {5, 6, 4},
                            {7, 67, 4},
                            {2, 20, 3},
                            {1030, 131, 4}}) {
    const int64_t positions = c.length - c.kernel + 1;
    const auto x = random_values(c.channels * c.length, 14);
    const auto w = random_values(c.channels * c.kernel, 15);
    const auto bias = random_values(c.channels, 16);
    for (const float* b : {bias.data(), static_cast<const float*>(nullptr)}) {
      const auto run = [&](ThreadPool& pool) {
        std::vector<float> out(c.channels * positions);
        depthwise_conv1d_f32(x.data(), w.data(), b, out.data(), c.channels, c.length, c.kernel,
                             pool);
        return out;
      };
      expect_same_with_any_pool(run);
      on_every_target([&] {
        ThreadPool pool(1);
        const auto out = run(pool);
        for (int64_t i = 0; i < c.channels * positions; ++i) {
          const int64_t ch = i / positions;
          double sum = b ? b[ch] : 0;
          for (int64_t j = 0; j < c.kernel; ++j) {
            sum += double(w[ch * c.kernel + j]) * x[ch * c.length + i % positions + j];
          }
          ASSERT_NEAR(out[i], sum, 1e-6);
        }
      });
    }
  }
}

TEST(ConvTest, AStepAloneHasTheBitsOfTheStepInASequence) {
  const int64_t channels = 37, length = 40;
  const auto x = random_values(channels * length, 17), w = random_values(channels * 4, 18);
  on_every_target([&] {
    ThreadPool pool(1);
    std::vector<float> all(channels * (length - 3)), step(channels), window(channels * 4);
    depthwise_conv1d_f32(x.data(), w.data(), nullptr, all.data(), channels, length, 4, pool);
    for (int64_t t = 0; t < length - 3; ++t) {
      for (int64_t c = 0; c < channels; ++c) {
        std::copy_n(&x[c * length + t], 4, &window[c * 4]);
      }
      depthwise_conv1d_f32(window.data(), w.data(), nullptr, step.data(), channels, 4, 4, pool);
      for (int64_t c = 0; c < channels; ++c) ASSERT_EQ(step[c], all[c * (length - 3) + t]);
    }
  });
}

struct BmmCase {
  int64_t batch, m, n, k;
};

// Tolerance: 4 units of f32 of the sum of magnitudes.
TEST(BmmTest, MatchesDoubleWithAnyPool) {
  for (const BmmCase& c : {BmmCase{1, 1, 1, 1},
                           {2, 3, 17, 5},
                           {3, 1, 64, 257},
                           {1, 5, 300, 63},
                           {2, 37, 65, 64},
                           {1, 64, 16, 17},
                           {2, 2, 3, 0}}) {
    const auto a = random_values(c.batch * c.m * c.k, 20);
    const auto b = random_values(c.batch * c.k * c.n, 21);
    const auto run = [&](ThreadPool& pool) {
      std::vector<float> out(c.batch * c.m * c.n, kNan);
      bmm_f32(a.data(), b.data(), out.data(), c.batch, c.m, c.n, c.k, pool);
      return out;
    };
    expect_same_with_any_pool(run);
    on_every_target([&] {
      ThreadPool pool(1);
      const auto out = run(pool);
      for (int64_t i = 0; i < c.batch * c.m; ++i) {
        for (int64_t j = 0; j < c.n; ++j) {
          double sum = 0, size = 0;
          for (int64_t p = 0; p < c.k; ++p) {
            const double term = double(a[i * c.k + p]) * b[(i / c.m * c.k + p) * c.n + j];
            sum += term;
            size += std::abs(term);
          }
          ASSERT_NEAR(out[i * c.n + j], sum, 0x1p-22 * size);
        }
      }
    });
  }
}

enum class Seen { kCausal, kAll, kMask };

struct SdpaCase {
  SdpaShape shape;
  int64_t start_pos;
  Seen seen;
};

struct SdpaData {
  std::vector<float> query, key, value, mask;
};

SdpaData sdpa_data(const SdpaCase& c) {
  const SdpaShape& s = c.shape;
  SdpaData d{random_values(s.batch * s.t * s.heads * s.dim, 30, 3),
             random_values(s.batch * s.context * s.kv_heads * s.dim, 31, 3),
             random_values(s.batch * s.context * s.kv_heads * s.dim, 32, 3),
             {}};
  if (c.seen == Seen::kMask) d.mask = random_values(s.t * s.context, 33);
  return d;
}

std::vector<float> run_sdpa(const SdpaCase& c, const SdpaData& d, ThreadPool& pool) {
  std::vector<float> out(d.query.size(), kNan);
  sdpa_f32(c.shape, d.query.data(), d.key.data(), d.value.data(),
           d.mask.empty() ? nullptr : d.mask.data(), c.seen == Seen::kCausal, c.start_pos, 0.3f,
           out.data(), pool);
  return out;
}

// The twin: softmax over all seen keys at once. A row without a finite score is zero.
std::vector<double> naive_sdpa(const SdpaCase& c, const SdpaData& d) {
  const SdpaShape& s = c.shape;
  std::vector<double> out(d.query.size(), 0.0);
  for (int64_t row = 0; row < s.batch * s.t * s.heads; ++row) {
    const int64_t b = row / s.heads / s.t, i = row / s.heads % s.t;
    const int64_t kv_head = row % s.heads / (s.heads / s.kv_heads);
    const int64_t seen = c.seen == Seen::kCausal ? c.start_pos + i + 1 : s.context;
    const auto at = [&](int64_t j) { return ((b * s.context + j) * s.kv_heads + kv_head) * s.dim; };
    std::vector<double> score(seen);
    double top = -kInf, total = 0;
    for (int64_t j = 0; j < seen; ++j) {
      for (int64_t e = 0; e < s.dim; ++e)
        score[j] += double(d.query[row * s.dim + e]) * d.key[at(j) + e];
      score[j] = score[j] * double(0.3f) + (d.mask.empty() ? 0 : d.mask[i * s.context + j]);
      top = std::max(top, score[j]);
    }
    if (std::isinf(top)) continue;
    for (double& v : score) total += v = std::exp(v - top);
    for (int64_t j = 0; j < seen; ++j) {
      for (int64_t e = 0; e < s.dim; ++e)
        out[row * s.dim + e] += score[j] / total * d.value[at(j) + e];
    }
  }
  return out;
}

void expect_near(const std::vector<float>& actual, const std::vector<double>& expected,
                 double bound) {
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < actual.size(); ++i) ASSERT_NEAR(actual[i], expected[i], bound) << i;
}

const SdpaCase kSdpaCases[] = {
    {{1, 1, 1, 1, 1, 1}, 0, Seen::kCausal},       {{1, 1, 4, 2, 64, 300}, 257, Seen::kCausal},
    {{2, 1, 8, 1, 17, 97}, 96, Seen::kCausal},    {{1, 1, 3, 3, 128, 200}, 95, Seen::kCausal},
    {{1, 5, 4, 2, 16, 101}, 95, Seen::kCausal},   {{2, 40, 6, 2, 24, 130}, 0, Seen::kCausal},
    {{1, 130, 4, 4, 80, 257}, 63, Seen::kCausal}, {{1, 33, 2, 1, 65, 200}, 100, Seen::kCausal},
    {{1, 7, 4, 2, 64, 65}, 0, Seen::kAll},        {{2, 3, 2, 2, 8, 193}, 0, Seen::kAll},
    {{1, 17, 4, 2, 32, 113}, 0, Seen::kMask},     {{2, 1, 4, 1, 63, 257}, 5, Seen::kMask},
};

// Tolerance: values up to 3 and scores up to about 100, whose rounding exp magnifies.
TEST(SdpaTest, MatchesDoubleOnEveryTarget) {
  ThreadPool pool(2);
  for (const SdpaCase& c : kSdpaCases) {
    const SdpaData d = sdpa_data(c);
    const auto expected = naive_sdpa(c, d);
    on_every_target([&] { expect_near(run_sdpa(c, d, pool), expected, 1e-4); });
  }
}

TEST(SdpaTest, SameBitsWithAnyPool) {
  for (const SdpaCase& c : kSdpaCases) {
    const SdpaData d = sdpa_data(c);
    expect_same_with_any_pool([&](ThreadPool& pool) { return run_sdpa(c, d, pool); });
  }
}

TEST(SdpaTest, AQueryOfAPrefillHasTheBitsItHasAlone) {
  ThreadPool pool(2);
  const SdpaCase all{{1, 130, 6, 2, 40, 300}, 63, Seen::kCausal};
  const SdpaData d = sdpa_data(all);
  on_every_target([&] {
    const auto batch = run_sdpa(all, d, pool);
    const int64_t row = all.shape.heads * all.shape.dim;
    for (int64_t i = 0; i < all.shape.t; i += 7) {
      SdpaCase one = all;
      one.shape.t = 1;
      one.start_pos += i;
      SdpaData alone = d;
      alone.query.assign(&d.query[i * row], &d.query[i * row] + row);
      const auto out = run_sdpa(one, alone, pool);
      ASSERT_EQ(std::memcmp(out.data(), &batch[i * row], row * sizeof(float)), 0) << i;
    }
  });
}

TEST(SdpaTest, KeysBeyondWhatAQuerySeesHaveNoInfluence) {
  ThreadPool pool(2);
  const SdpaCase c{{1, 20, 4, 2, 32, 200}, 90, Seen::kCausal};
  SdpaData d = sdpa_data(c);
  on_every_target([&] {
    const auto expected = run_sdpa(c, d, pool);
    SdpaData poisoned = d;
    const int64_t row = 2 * 32, last = (90 + 19) * row;  // only the last query sees this key
    for (size_t i = last; i < poisoned.key.size(); ++i) {
      poisoned.key[i] = poisoned.value[i] = kNan;
    }
    const auto out = run_sdpa(c, poisoned, pool);
    const size_t others = 19 * 4 * 32;
    EXPECT_EQ(std::memcmp(out.data(), expected.data(), others * sizeof(float)), 0);
    EXPECT_TRUE(std::isnan(out[others]));
  });
}

TEST(SdpaTest, MaskedKeysHaveNoWeight) {
  ThreadPool pool(2);
  on_every_target([&] {
    for (const float low : {-65535.0f, -kInf}) {
      SdpaCase c{{1, 5, 4, 2, 16, 300}, 0, Seen::kMask};
      SdpaData d = sdpa_data(c);
      // Query i sees the keys from 60 * i on: whole blocks at the start are masked.
      for (int64_t i = 0; i < 5; ++i) {
        for (int64_t j = 0; j < 300; ++j) d.mask[i * 300 + j] = j < 60 * i ? low : 0.0f;
      }
      expect_near(run_sdpa(c, d, pool), naive_sdpa(c, d), 1e-4);
    }
  });
}

TEST(SdpaTest, ARowWithoutAnyKeyIsZero) {
  ThreadPool pool(2);
  on_every_target([&] {
    SdpaCase c{{1, 3, 4, 2, 16, 130}, 0, Seen::kMask};
    SdpaData d = sdpa_data(c);
    std::fill_n(&d.mask[130], 130, -kInf);
    const auto out = run_sdpa(c, d, pool);
    expect_near(out, naive_sdpa(c, d), 1e-4);
    for (size_t i = 4 * 16; i < 2 * 4 * 16; ++i) EXPECT_EQ(out[i], 0.0f);
  });
}

TEST(SdpaTest, ARowOfVeryLowFiniteMasksIsStillASoftmax) {
  ThreadPool pool(2);
  on_every_target([&] {
    SdpaCase c{{1, 1, 2, 1, 16, 200}, 0, Seen::kMask};
    SdpaData d = sdpa_data(c);
    std::fill(d.mask.begin(), d.mask.end(), -65535.0f);
    // Scores near 65535 keep 8 bits after the point, as in the reference.
    expect_near(run_sdpa(c, d, pool), naive_sdpa(c, d), 2e-2);
  });
}

struct DeltaRuleData {
  std::vector<float> query, key, value, decay, beta, state;
};

DeltaRuleData delta_rule_data(const DeltaRuleShape& s) {
  const int64_t heads = s.batch * s.heads, steps = heads * s.t;
  DeltaRuleData d{random_values(steps * s.key_dim, 40),
                  random_values(steps * s.key_dim, 41),
                  random_values(steps * s.value_dim, 42),
                  random_values(steps * (s.decay_per_key ? s.key_dim : 1), 43),
                  random_values(steps, 44),
                  random_values(heads * s.key_dim * s.value_dim, 45)};
  for (float& g : d.decay) g = 0.6f + 0.4f * g;
  for (float& b : d.beta) b = 0.5f + 0.5f * b;
  // Unit keys, as the callers pass them; otherwise the state grows without bound.
  for (int64_t i = 0; i < steps; ++i) {
    double square = 0;
    for (int64_t j = 0; j < s.key_dim; ++j) square += std::pow(d.key[i * s.key_dim + j], 2);
    for (int64_t j = 0; j < s.key_dim; ++j) d.key[i * s.key_dim + j] /= float(std::sqrt(square));
  }
  return d;
}

// out, then the state.
std::vector<float> run_delta_rule(const DeltaRuleShape& s, const DeltaRuleData& d,
                                  ThreadPool& pool) {
  std::vector<float> result(d.value.size() + d.state.size(), kNan);
  gated_delta_rule_f32(s, d.query.data(), d.key.data(), d.value.data(), d.decay.data(),
                       d.beta.data(), d.state.data(), result.data(), result.data() + d.value.size(),
                       pool);
  return result;
}

std::vector<double> naive_delta_rule(const DeltaRuleShape& s, const DeltaRuleData& d) {
  std::vector<double> result;
  std::vector<double> state(d.state.begin(), d.state.end());
  for (int64_t at = 0; at < s.batch * s.heads * s.t; ++at) {
    double* const S = &state[at / s.t * s.key_dim * s.value_dim];
    for (int64_t j = 0; j < s.value_dim; ++j) {
      double memory = 0, out = 0;
      for (int64_t i = 0; i < s.key_dim; ++i) {
        S[i * s.value_dim + j] *= d.decay[s.decay_per_key ? at * s.key_dim + i : at];
        memory += S[i * s.value_dim + j] * d.key[at * s.key_dim + i];
      }
      const double delta = d.beta[at] * (d.value[at * s.value_dim + j] - memory);
      for (int64_t i = 0; i < s.key_dim; ++i) {
        S[i * s.value_dim + j] += d.key[at * s.key_dim + i] * delta;
        out += S[i * s.value_dim + j] * d.query[at * s.key_dim + i];
      }
      result.push_back(out);
    }
  }
  result.insert(result.end(), state.begin(), state.end());
  return result;
}

const DeltaRuleShape kDeltaRuleCases[] = {
    {1, 1, 1, 1, 1, false},    {2, 3, 1, 16, 64, false},  {1, 2, 9, 17, 33, true},
    {1, 4, 20, 64, 63, false}, {1, 1, 3, 128, 128, true}, {2, 1, 2, 3, 257, false},
    {1, 2, 0, 4, 5, false},
};

TEST(DeltaRuleTest, MatchesDoubleOnEveryTarget) {
  ThreadPool pool(2);
  for (const DeltaRuleShape& s : kDeltaRuleCases) {
    const DeltaRuleData d = delta_rule_data(s);
    const auto expected = naive_delta_rule(s, d);
    on_every_target([&] { expect_near(run_delta_rule(s, d, pool), expected, 2e-5); });
  }
}

TEST(DeltaRuleTest, SameBitsWithAnyPool) {
  for (const DeltaRuleShape& s : kDeltaRuleCases) {
    const DeltaRuleData d = delta_rule_data(s);
    expect_same_with_any_pool([&](ThreadPool& pool) { return run_delta_rule(s, d, pool); });
  }
}

TEST(DeltaRuleTest, StepByStepHasTheBitsOfTheWholeSequence) {
  ThreadPool pool(2);
  const DeltaRuleShape all{1, 1, 12, 24, 70, false};
  const DeltaRuleData d = delta_rule_data(all);
  on_every_target([&] {
    const auto expected = run_delta_rule(all, d, pool);
    DeltaRuleShape one = all;
    one.t = 1;
    std::vector<float> result, state = d.state;
    for (int64_t t = 0; t < all.t; ++t) {
      const auto part = [&](const std::vector<float>& from, int64_t n) {
        return std::vector<float>(from.begin() + t * n, from.begin() + (t + 1) * n);
      };
      const DeltaRuleData step{part(d.query, 24), part(d.key, 24), part(d.value, 70),
                               part(d.decay, 1),  part(d.beta, 1), state};
      const auto out = run_delta_rule(one, step, pool);
      result.insert(result.end(), out.begin(), out.begin() + 70);
      state.assign(out.begin() + 70, out.end());
    }
    result.insert(result.end(), state.begin(), state.end());
    EXPECT_EQ(result, expected);
  });
}

TEST(DeltaRuleTest, TheStateMayBeUpdatedInPlace) {
  ThreadPool pool(2);
  for (const DeltaRuleShape& s : kDeltaRuleCases) {
    const DeltaRuleData d = delta_rule_data(s);
    on_every_target([&] {
      std::vector<float> result(d.value.size() + d.state.size());
      float* const state = result.data() + d.value.size();
      std::copy(d.state.begin(), d.state.end(), state);
      gated_delta_rule_f32(s, d.query.data(), d.key.data(), d.value.data(), d.decay.data(),
                           d.beta.data(), state, result.data(), state, pool);
      EXPECT_EQ(result, run_delta_rule(s, d, pool));
    });
  }
}

}  // namespace
}  // namespace ferry::kernels
