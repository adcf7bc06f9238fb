#include "calibration/moments.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace ferry::calibration {
namespace {

// Returns rows of inputs whose columns depend on each other.
std::vector<float> inputs(int64_t rows, int64_t columns, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values;
  for (int64_t r = 0; r < rows; ++r) {
    const float common = normal(random);
    for (int64_t c = 0; c < columns; ++c) {
      values.push_back(common + normal(random) * (1.0f + static_cast<float>(c % 7)));
    }
  }
  return values;
}

TEST(Moments, AreTheMeanOfProducts) {
  ThreadPool pool(2);
  constexpr int64_t kRows = 1500, kColumns = 150;  // more than what is added at once
  const std::vector<float> x = inputs(kRows, kColumns, 1);
  Moments moments(kColumns);
  moments.add(std::span(x).first(700 * kColumns), pool);
  moments.add(std::span(x).subspan(700 * kColumns), pool);
  const std::vector<float> h = moments.matrix(pool);
  EXPECT_EQ(moments.rows(), kRows);
  for (int64_t i = 0; i < kColumns; i += 13) {
    for (int64_t j = 0; j < kColumns; ++j) {
      double sum = 0;
      for (int64_t r = 0; r < kRows; ++r) {
        sum += double{x[static_cast<size_t>(r * kColumns + i)]} *
               double{x[static_cast<size_t>(r * kColumns + j)]};
      }
      EXPECT_NEAR(h[static_cast<size_t>(i * kColumns + j)], sum / kRows, 1e-3);
    }
  }
}

TEST(Moments, TheFactorGivesTheMatrix) {
  ThreadPool pool(2);
  constexpr size_t kColumns = 300;  // of more than one block
  Moments moments(kColumns);
  moments.add(inputs(2000, kColumns, 2), pool);
  const std::vector<float> h = moments.matrix(pool);
  const Factor factor = factor_of(h, kColumns, pool);
  for (size_t q = 0; q + 1 < kColumns; ++q) {
    EXPECT_GE(factor.matrix[q * kColumns + q], factor.matrix[(q + 1) * kColumns + q + 1]);
  }
  // R R^T has the elements sum over k >= max(p, q) of ratio[p][k] ratio[q][k] d[k], with the
  // squares d of the diagonal of R, which follow from the last column to the first.
  const auto ratio = [&](size_t p, size_t k) {
    return p == k ? 1.0 : double{factor.ratios[p * kColumns + k]};
  };
  std::vector<double> squares(kColumns);
  for (size_t p = kColumns; p-- > 0;) {
    double rest = factor.matrix[p * kColumns + p];
    for (size_t k = p + 1; k < kColumns; ++k) rest -= ratio(p, k) * ratio(p, k) * squares[k];
    squares[p] = rest;
    ASSERT_GT(rest, 0);
  }
  for (size_t p = 0; p < kColumns; p += 17) {
    for (size_t q = p; q < kColumns; ++q) {
      double sum = 0;
      for (size_t k = q; k < kColumns; ++k) sum += ratio(p, k) * ratio(q, k) * squares[k];
      EXPECT_NEAR(sum, factor.matrix[p * kColumns + q], 2e-3) << p << " " << q;
    }
  }
}

TEST(Moments, ColumnsWithoutInputsStandAlone) {
  ThreadPool pool(1);
  Moments moments(3);
  moments.add(std::vector<float>{1, 0, 2, 2, 0, 4}, pool);  // rank 1, and a column of zeros
  const Factor factor = factor_of(moments.matrix(pool), 3, pool);
  EXPECT_EQ(std::ranges::count(factor.order, 1), 1);
  for (const float value : factor.matrix) EXPECT_TRUE(std::isfinite(value));
  for (size_t p = 0; p < 3; ++p) {
    for (size_t q = p + 1; q < 3; ++q) EXPECT_TRUE(std::isfinite(factor.ratios[p * 3 + q]));
  }
  Moments none(4);
  const Factor nothing = factor_of(none.matrix(pool), 4, pool);
  EXPECT_EQ(nothing.order, (std::vector<int32_t>{0, 1, 2, 3}));
}

TEST(Moments, DoNotDependOnTheThreads) {
  ThreadPool one(1), three(3);
  const std::vector<float> x = inputs(1300, 200, 3);
  Moments a(200), b(200);
  a.add(x, one);
  b.add(x, three);
  const std::vector<float> h = a.matrix(one);
  EXPECT_EQ(h, b.matrix(three));
  EXPECT_EQ(factor_of(h, 200, one).matrix, factor_of(h, 200, three).matrix);
}

}  // namespace
}  // namespace ferry::calibration
