// The f64 kernels, compared with plain loops and with the f32 kernels, on every instruction set of
// this machine.
#include "kernels/compute_f64.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "tests/kernels/compute_testing.h"

namespace ferry::kernels::compute_f64_test {
namespace {

std::vector<double> doubles(size_t count, uint32_t seed) {
  const std::vector<float> high = random_values(count, seed), low = random_values(count, seed + 1);
  std::vector<double> values(count);
  for (size_t i = 0; i < count; ++i) values[i] = double(high[i]) + 1e-9 * double(low[i]);
  return values;
}

// Sums of n terms in another order differ by a few units of f64.
void expect_near(const std::vector<double>& got, const std::vector<double>& want, double size) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], want[i], size * 0x1p-46) << i;
}

TEST(ComputeF64, LinearWithMatricesOfEveryDtype) {
  struct Sizes {
    int64_t m, n, k;
  };
  ThreadPool pool(2);
  on_every_target([&] {
    for (const Sizes& s :
         {Sizes{1, 5, 70}, Sizes{3, 65, 33}, Sizes{9, 17, 600}, Sizes{20, 70, 1}}) {
      const std::vector<double> x = doubles(s.m * s.k, 1);
      const std::vector<float> w = random_values(s.n * s.k, 5);
      std::vector<double> got(s.m * s.n), want(s.m * s.n);
      for (int64_t i = 0; i < s.m; ++i) {
        for (int64_t j = 0; j < s.n; ++j) {
          for (int64_t p = 0; p < s.k; ++p)
            want[i * s.n + j] += x[i * s.k + p] * double(w[j * s.k + p]);
        }
      }
      linear_f64(x.data(), DType::kF32, w.data(), got.data(), s.m, s.n, s.k, pool);
      expect_near(got, want, 600);
      const std::vector<double> wide(w.begin(), w.end());
      linear_f64(x.data(), DType::kF64, wide.data(), got.data(), s.m, s.n, s.k, pool);
      expect_near(got, want, 600);
    }
  });
}

TEST(ComputeF64, BatchesOfProducts) {
  ThreadPool pool(2);
  constexpr int64_t kBatch = 3, kM = 10, kN = 19, kK = 600;
  const std::vector<double> a = doubles(kBatch * kM * kK, 1), b = doubles(kBatch * kK * kN, 9);
  std::vector<double> want(kBatch * kM * kN);
  for (int64_t i = 0; i < kBatch; ++i) {
    for (int64_t m = 0; m < kM; ++m) {
      for (int64_t n = 0; n < kN; ++n) {
        for (int64_t k = 0; k < kK; ++k) {
          want[(i * kM + m) * kN + n] += a[(i * kM + m) * kK + k] * b[(i * kK + k) * kN + n];
        }
      }
    }
  }
  on_every_target([&] {
    std::vector<double> got(want.size());
    bmm_f64(a.data(), b.data(), got.data(), kBatch, kM, kN, kK, pool);
    expect_near(got, want, kK);
  });
}

TEST(ComputeF64, AttentionAgreesWithF32WithinItsRounding) {
  ThreadPool pool(2);
  const SdpaShape shape{1, 5, 6, 2, 24, 40};
  const auto size = [](int64_t a, int64_t b, int64_t c) { return static_cast<size_t>(a * b * c); };
  const std::vector<float> q = random_values(size(5, 6, 24), 1),
                           k = random_values(size(40, 2, 24), 2),
                           v = random_values(size(40, 2, 24), 3);
  const std::vector<double> wide_q(q.begin(), q.end()), wide_k(k.begin(), k.end()),
      wide_v(v.begin(), v.end());
  for (const bool causal : {true, false}) {
    std::vector<float> out(q.size());
    std::vector<double> wide(q.size());
    sdpa_f32(shape, q.data(), {DType::kF32, k.data()}, {DType::kF32, v.data()}, nullptr, causal, 7,
             0.25F, out.data(), pool);
    sdpa_f64(shape, wide_q.data(), wide_k.data(), wide_v.data(), nullptr, causal, 7, 0.25,
             wide.data(), pool);
    for (size_t i = 0; i < out.size(); ++i) EXPECT_NEAR(double(out[i]), wide[i], 2e-6) << i;
  }
}

TEST(ComputeF64, TheDeltaRuleAgreesWithF32WithinItsRounding) {
  ThreadPool pool(2);
  for (const bool per_key : {false, true}) {
    const DeltaRuleShape shape{1, 3, 6, 8, 20, per_key};
    const auto values = [](size_t count, uint32_t seed) { return random_values(count, seed); };
    const std::vector<float> q = values(3 * 6 * 8, 1), k = values(3 * 6 * 8, 2),
                             v = values(3 * 6 * 20, 3), state = values(3 * 8 * 20, 6);
    std::vector<float> decay = values(3 * 6 * (per_key ? 8 : 1), 4), beta = values(3 * 6, 5);
    for (float& d : decay) d = 1 / (1 + std::exp(-d));
    for (float& b : beta) b = 1 / (1 + std::exp(-b));
    const auto wide = [](const std::vector<float>& f) {
      return std::vector<double>(f.begin(), f.end());
    };
    std::vector<float> out(v.size()), last(state.size());
    std::vector<double> wide_out(v.size()), wide_last(state.size());
    gated_delta_rule_f32(shape, q.data(), k.data(), v.data(), decay.data(), beta.data(),
                         state.data(), out.data(), last.data(), pool);
    gated_delta_rule_f64(shape, wide(q).data(), wide(k).data(), wide(v).data(), wide(decay).data(),
                         wide(beta).data(), wide(state).data(), wide_out.data(), wide_last.data(),
                         pool);
    const double size = *std::ranges::max_element(wide_last) + 100;
    for (size_t i = 0; i < out.size(); ++i) EXPECT_NEAR(double(out[i]), wide_out[i], size * 1e-5);
    for (size_t i = 0; i < last.size(); ++i)
      EXPECT_NEAR(double(last[i]), wide_last[i], size * 1e-5);
  }
}

}  // namespace
}  // namespace ferry::kernels::compute_f64_test
