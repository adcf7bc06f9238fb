// linear, casts and element-wise kernels, compared with plain loops in double, on every instruction
// set of this machine. The results with pools of 1, 2 and 3 threads must be equal to the bit.
#include "kernels/compute.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "tests/kernels/compute_testing.h"

namespace ferry::kernels::compute_test {
namespace {

// Values stored as dtype, and their values after rounding.
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

// The tolerance is 4 units of f32 of the sum of magnitudes, and one rounding to dtype.
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

TEST_P(LinearTest, ColumnHasTheBitsItHasAlone) {
  ThreadPool pool(2);
  on_every_target([&] {
    for (const LinearCase& c : {LinearCase{1, 203, 257}, LinearCase{4, 203, 257}}) {
      const Stored x = stored(GetParam(), random_values(c.m * c.k, 9));
      const Stored w = stored(GetParam(), random_values(c.n * c.k, 10));
      const auto all = run_linear(GetParam(), x, w.bytes.data(), c, pool);
      const int64_t size = dtype_bytes(GetParam());
      for (int64_t j = 0; j < c.n; ++j) {
        const auto column =
            run_linear(GetParam(), x, &w.bytes[j * c.k * size], {c.m, 1, c.k}, pool);
        for (int64_t i = 0; i < c.m; ++i) {
          ASSERT_EQ(std::memcmp(&column[i * size], &all[(i * c.n + j) * size], size), 0)
              << "row " << i << " column " << j;
        }
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

// Returns the distance of `actual` from `expected`, in units of the last place of f32.
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

// Returns exponents from where e^x is below the smallest subnormal to where it is above the largest
// f32.
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

double exact_gelu(double x) { return x / 2 * std::erfc(-x / std::sqrt(2.0)); }
// Computes 1 + tanh(u) as 2 / (1 + e^-2u), which loses no precision for negative u.
double exact_gelu_tanh(double x) {
  const double u = std::sqrt(2 / std::acos(-1.0)) * (x + 0.044715 * x * x * x);
  return x / (1 + std::exp(-2 * u));
}

TEST(ElementwiseTest, GeluIsWithinTwoUlpOfItsOperand) {
  on_every_target([] {
    std::vector<float> x;
    for (int i = -120000; i <= 120000; ++i) x.push_back(static_cast<float>(i) * 1e-4F);
    std::vector<float> y(x.size());
    const auto check = [&](double (*exact)(double)) {
      for (size_t i = 0; i < x.size(); ++i) {
        const double want = exact(x[i]);
        ASSERT_LE(std::fabs(double(y[i]) - want), std::ldexp(std::fabs(double(x[i])), -22))
            << "at " << x[i];
      }
    };
    gelu_f32(x.data(), y.data(), static_cast<int64_t>(x.size()));
    check(exact_gelu);
    gelu_tanh_f32(x.data(), y.data(), static_cast<int64_t>(x.size()));
    check(exact_gelu_tanh);
  });
}

TEST(ElementwiseTest, GatedProductsHaveTheBitsOfTheirSteps) {
  on_every_target([] {
    const auto gate = exponents();
    const auto n = static_cast<int64_t>(gate.size());
    std::vector<float> up(gate.rbegin(), gate.rend()), active(gate.size()), steps(gate.size());
    const auto check = [&](GateActivation activation) {
      std::vector<float> out = gate;  // `out` may be the gate
      mul_f32(active.data(), up.data(), steps.data(), n);
      gated_product_f32(activation, out.data(), up.data(), out.data(), n);
      EXPECT_EQ(std::memcmp(out.data(), steps.data(), out.size() * sizeof(float)), 0)
          << static_cast<int>(activation);
    };
    sigmoid_f32(gate.data(), active.data(), n);
    mul_f32(gate.data(), active.data(), active.data(), n);
    check(GateActivation::kSilu);
    gelu_f32(gate.data(), active.data(), n);
    check(GateActivation::kGelu);
    gelu_tanh_f32(gate.data(), active.data(), n);
    check(GateActivation::kGeluTanh);
  });
}

TEST(ElementwiseTest, GeluOfSpecialValues) {
  on_every_target([] {
    for (const auto gelu : {gelu_f32, gelu_tanh_f32}) {
      const std::vector<float> x = {kNan, kInf, 1e30F, -1e30F, 0.0F, 100.0F, -100.0F};
      std::vector<float> y(x.size());
      gelu(x.data(), y.data(), static_cast<int64_t>(x.size()));
      EXPECT_TRUE(std::isnan(y[0]));
      EXPECT_EQ(y[1], kInf);
      EXPECT_EQ(y[2], 1e30F);
      EXPECT_EQ(y[3], 0.0F);
      EXPECT_EQ(y[4], 0.0F);
      EXPECT_EQ(y[5], 100.0F);
      EXPECT_EQ(y[6], 0.0F);
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

// Returns f32 values next to every rounding boundary of 16 bits, and special values.
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

// The tolerance allows for the rounding of the difference from the maximum, up to 60 here, before
// exp.
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

}  // namespace
}  // namespace ferry::kernels::compute_test
