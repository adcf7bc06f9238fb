#include "proof/bounds.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

namespace ferry::proof::bounds_test {
namespace {

const ReferenceTensor kHidden = {ReferenceTensor::Kind::kHidden, "hidden_states.1",
                                 "hidden_states.1", 0};

ValueMetrics compare(const std::vector<float>& got, const std::vector<float>& want) {
  ValueComparison comparison;
  comparison.add(got, want);
  return comparison.metrics();
}

ParityBounds absolute(double bound) {
  ParityBounds bounds;
  bounds.max_abs = bound;
  return bounds;
}

ParityBounds rounded(DType dtype, bool delta_rule = false) {
  ParityBounds bounds;
  bounds.rounding = dtype;
  bounds.delta_rule = delta_rule;
  bounds.layers = 4;
  return bounds;
}

TEST(Bounds, ScaleWithTheSizeOfTheValuesButNotBelowOne) {
  EXPECT_TRUE(absolute(0.01).within(kHidden, compare({100.5F}, {100})));
  EXPECT_FALSE(absolute(0.01).within(kHidden, compare({101.5F}, {100})));
  EXPECT_TRUE(absolute(0.125).within(kHidden, compare({0.25F}, {0.125F})));
  EXPECT_FALSE(absolute(0.1).within(kHidden, compare({0.25F}, {0.125F})));
}

TEST(Bounds, OfLogitsAreAbsolute) {
  EXPECT_TRUE(absolute(0.5).logits_within(compare({100.5F}, {100})));
  EXPECT_FALSE(absolute(0.25).logits_within(compare({100.5F}, {100})));
}

TEST(Bounds, NoBoundAdmitsNaN) {
  const ValueMetrics bad = compare({std::numeric_limits<float>::quiet_NaN()}, {1});
  EXPECT_FALSE(absolute(1e30).within(kHidden, bad));
  EXPECT_FALSE(absolute(1e30).logits_within(bad));
  EXPECT_FALSE(rounded(DType::kBF16).within(kHidden, bad));
}

// Earlier bounds of half precision accepted a layer of zeros, and one of twice the values.
TEST(Bounds, HalfPrecisionIsHeldToItsRounding) {
  const std::vector<float> want = {1, -2, 3, 4};
  for (const DType dtype : {DType::kBF16, DType::kF16}) {
    for (const bool delta : {false, true}) {
      const ParityBounds bounds = rounded(dtype, delta);
      EXPECT_TRUE(bounds.within(kHidden, compare({1.001F, -2.001F, 3.01F, 4}, want)));
      EXPECT_FALSE(bounds.within(kHidden, compare({0, 0, 0, 0}, want)));
      EXPECT_FALSE(bounds.within(kHidden, compare({2, -4, 6, 8}, want)));
      EXPECT_FALSE(bounds.logits_within(compare({2, -4, 6, 8}, want)));
    }
  }
}

TEST(Bounds, FloorsFollowTheSignificandAndTheDepth) {
  const auto floor = [](DType dtype, int64_t layer) {
    ReferenceTensor tensor = kHidden;
    tensor.layer = layer;
    return *rounded(dtype).floor_db(tensor);
  };
  EXPECT_DOUBLE_EQ(floor(DType::kF16, 2) - floor(DType::kBF16, 2), 18);
  EXPECT_DOUBLE_EQ(floor(DType::kBF16, -1), floor(DType::kBF16, 3));
  EXPECT_DOUBLE_EQ(floor(DType::kBF16, 3) - floor(DType::kBF16, 39), 10);
  EXPECT_EQ(absolute(1).floor_db(kHidden), std::nullopt);
}

TEST(Bounds, AnotherTokenIsExplainedByErrorsWithinTheBoundOnly) {
  const std::vector<float> want = {1, 1.1F, 0};
  EXPECT_TRUE(absolute(0.06).explains_choice(std::vector<float>{1.1F, 1, 0}, want));
  EXPECT_FALSE(absolute(0.04).explains_choice(std::vector<float>{1.1F, 1, 0}, want));
  EXPECT_TRUE(rounded(DType::kBF16).explains_choice(std::vector<float>{1.1F, 1.05F, 0}, want));
  EXPECT_FALSE(rounded(DType::kBF16).explains_choice(std::vector<float>{3, 1.1F, 0}, want));
}

}  // namespace
}  // namespace ferry::proof::bounds_test
