// Factors that move from inputs to weights.
#include "calibration/smoothing.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace ferry::calibration {
namespace {

TEST(Smoothing, FactorsAreTheFourthRootOfTheMeanMagnitude) {
  ChannelMeans means(3);
  means.add(std::vector<float>{1, -16, 4, -1, 16, -4});
  means.add(std::vector<float>{1, 16, 4});
  const SmoothingFactors factors = means.factors();
  ASSERT_EQ(factors.weights.size(), 3u);
  // The roots are 1, 2 and sqrt(2) times the same number; the middle of 1 and 2 is sqrt(2).
  const double middle = std::sqrt(2.0);
  EXPECT_NEAR(factors.weights[0], 1 / middle, 1e-6);
  EXPECT_NEAR(factors.weights[1], 2 / middle, 1e-6);
  EXPECT_NEAR(factors.weights[2], 1, 1e-6);
  for (size_t c = 0; c < 3; ++c) EXPECT_NEAR(factors.weights[c] * factors.inputs[c], 1, 1e-6);
}

TEST(Smoothing, ColumnsWithoutInputsGetNoExtremeFactor) {
  ChannelMeans means(2);
  means.add(std::vector<float>{0, 2});
  const SmoothingFactors factors = means.factors();
  EXPECT_GT(factors.weights[0], 0.3f);
  EXPECT_LT(factors.weights[1], 4.0f);
}

TEST(Smoothing, WithoutInputsAllFactorsAreOne) {
  const std::vector<float> ones(2, 1.0f);
  for (const std::vector<float>& inputs : {std::vector<float>{}, std::vector<float>{0, 0}}) {
    ChannelMeans means(2);
    means.add(inputs);
    EXPECT_EQ(means.factors().inputs, ones);
    EXPECT_EQ(means.factors().weights, ones);
  }
}

}  // namespace
}  // namespace ferry::calibration
