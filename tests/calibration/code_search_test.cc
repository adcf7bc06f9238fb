#include "calibration/code_search.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "graph/quantization/scheme.h"

namespace ferry::calibration {
namespace {

constexpr int64_t kWeightRows = 24, kWeightColumns = 192;

std::vector<float> normal_values(size_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& v : values) v = normal(random) * 0.05f;
  return values;
}

// Returns inputs whose columns depend on each other, some of them much larger than others.
std::vector<float> inputs() {
  std::vector<float> x = normal_values(600 * kWeightColumns, 7);
  for (size_t r = 0; r < 600; ++r) {
    for (size_t c = 1; c < kWeightColumns; ++c) {
      float& v = x[r * kWeightColumns + c];
      v = (c % 31 == 0 ? 20.0f : 1.0f) * (v + 0.8f * x[r * kWeightColumns + c - 1]);
      if (c % 31 == 1) v = v * 0.05f;
    }
  }
  return x;
}

Factor factor(ThreadPool& pool) {
  Moments moments(kWeightColumns);
  moments.add(inputs(), pool);
  return factor_of(moments.matrix(pool), kWeightColumns, pool);
}

// The mean squared error of the outputs that the stored codes give.
double output_error(const graph::QuantizationScheme& scheme, const std::vector<float>& weights,
                    const std::vector<std::byte>& codes, const std::vector<std::byte>& scales) {
  std::vector<float> stored(weights.size());
  graph::dequantize_rows(scheme, codes, scales, kWeightColumns, stored);
  const std::vector<float> x = inputs();
  double error = 0;
  for (size_t r = 0; r < kWeightRows; ++r) {
    for (size_t t = 0; t < 600; ++t) {
      double sum = 0;
      for (size_t c = 0; c < kWeightColumns; ++c) {
        const size_t at = r * kWeightColumns + c;
        sum += double{stored[at] - weights[at]} * double{x[t * kWeightColumns + c]};
      }
      error += sum * sum / 600;
    }
  }
  return error;
}

const graph::QuantizationScheme kSchemes[] = {
    {.bits = 4, .group = 32, .scale_dtype = DType::kBF16},
    {.bits = 4, .group = 64, .scale_dtype = DType::kF32, .order = graph::NibbleOrder::kHighFirst},
    {.bits = 8, .group = 0, .scale_dtype = DType::kF32}};

TEST(CodeSearch, LowersTheErrorOfTheOutputs) {
  ThreadPool pool(2);
  const Factor f = factor(pool);
  const std::vector<float> weights = normal_values(kWeightRows * kWeightColumns, 1);
  for (const graph::QuantizationScheme& scheme : kSchemes) {
    SCOPED_TRACE(scheme.bits * 1000 + scheme.group);
    std::vector<std::byte> codes(kWeightRows * scheme.code_bytes(kWeightColumns));
    std::vector<std::byte> scales(kWeightRows * scheme.scale_bytes(kWeightColumns));
    graph::quantize_rows(scheme, weights, kWeightColumns, codes, scales);
    const double nearest = output_error(scheme, weights, codes, scales);
    const ChosenRows chosen = choose_codes(scheme, weights, f, pool);
    const double error = output_error(scheme, weights, chosen.codes, chosen.scales);
    EXPECT_LT(error, nearest * 0.5);
    // Both sums include the damping of the diagonal.
    EXPECT_GE(chosen.error, error * 0.99);
    EXPECT_LT(chosen.error, chosen.nearest_error);
  }
}

TEST(CodeSearch, IndependentInputsOfOneSizeKeepTheNearestCodes) {
  ThreadPool pool(1);
  std::vector<float> identity(kWeightColumns * kWeightColumns);
  for (size_t i = 0; i < kWeightColumns; ++i) identity[i * kWeightColumns + i] = 1;
  const Factor f = factor_of(identity, kWeightColumns, pool);
  const graph::QuantizationScheme scheme = kSchemes[0];
  const std::vector<float> weights = normal_values(kWeightRows * kWeightColumns, 2);
  const ChosenRows chosen = choose_codes(scheme, weights, f, pool);
  std::vector<float> stored(weights.size());
  graph::dequantize_rows(scheme, chosen.codes, chosen.scales, kWeightColumns, stored);
  for (size_t i = 0; i < weights.size(); ++i) {
    float scale = 0;
    to_f32(DType::kBF16, chosen.scales.data() + i / 32 * 2, &scale, 1);
    const bool clipped = std::fabs(weights[i]) > 7.5f * scale;
    if (!clipped) {
      EXPECT_LE(std::fabs(stored[i] - weights[i]), scale * 0.5001f);
    }
  }
}

TEST(CodeSearch, ZerosAndTinyValuesHaveScales) {
  ThreadPool pool(1);
  const Factor f = factor(pool);
  std::vector<float> weights(kWeightRows * kWeightColumns);
  for (size_t i = kWeightColumns; i < 2 * kWeightColumns; ++i) weights[i] = 1e-42f;
  for (size_t i = 2 * kWeightColumns; i < 3 * kWeightColumns; ++i) weights[i] = 3e38f;
  for (const graph::QuantizationScheme& scheme : kSchemes) {
    const ChosenRows chosen = choose_codes(scheme, weights, f, pool);
    std::vector<float> stored(weights.size());
    graph::dequantize_rows(scheme, chosen.codes, chosen.scales, kWeightColumns, stored);
    for (const float value : stored) EXPECT_TRUE(std::isfinite(value));
  }
}

TEST(CodeSearch, RowsDoNotDependOnThreadsOrOtherRows) {
  ThreadPool one(1), three(3);
  const Factor f = factor(one);
  const std::vector<float> weights = normal_values(kWeightRows * kWeightColumns, 3);
  for (const graph::QuantizationScheme& scheme : kSchemes) {
    const ChosenRows all = choose_codes(scheme, weights, f, one);
    EXPECT_EQ(all.codes, choose_codes(scheme, weights, f, three).codes);
    const ChosenRows last =
        choose_codes(scheme, std::span(weights).last(3 * kWeightColumns), f, three);
    EXPECT_TRUE(std::equal(last.codes.rbegin(), last.codes.rend(), all.codes.rbegin()));
    EXPECT_TRUE(std::equal(last.scales.rbegin(), last.scales.rend(), all.scales.rbegin()));
  }
}

}  // namespace
}  // namespace ferry::calibration
