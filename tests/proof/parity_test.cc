#include "proof/parity.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "runner/sampler.h"

namespace ferry::proof::parity_test {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

ValueMetrics compare(const std::vector<float>& got, const std::vector<float>& want) {
  ValueComparison comparison;
  comparison.add(got, want);
  return comparison.metrics();
}

LogitMetrics compare_row(const std::vector<float>& got, const std::vector<float>& want) {
  LogitComparison comparison;
  comparison.add_row(0, got, want);
  return comparison.metrics();
}

TEST(ValueComparison, EqualValuesHaveNoError) {
  const ValueMetrics m = compare({1, -2, 3}, {1, -2, 3});
  EXPECT_EQ(m.max_abs, 0);
  EXPECT_EQ(m.mean_abs, 0);
  EXPECT_EQ(m.rel_rms, 0);
  EXPECT_EQ(m.cosine, 1);
  EXPECT_EQ(m.sqnr_db, kExactSqnrDb);
  EXPECT_EQ(m.scale, 3);
  EXPECT_TRUE(m.finite);
}

TEST(ValueComparison, MetricsAreThoseOfTheirFormulas) {
  // The errors are 1, 0, -2, 0; |want|^2 = 1 + 4 + 9 + 16 = 30; |error|^2 = 5.
  const ValueMetrics m = compare({2, 2, 1, 4}, {1, 2, 3, 4});
  EXPECT_EQ(m.max_abs, 2);
  EXPECT_EQ(m.mean_abs, 0.75);
  EXPECT_DOUBLE_EQ(m.rel_rms, std::sqrt(5.0 / 30.0));
  EXPECT_DOUBLE_EQ(m.sqnr_db, 10 * std::log10(30.0 / 5.0));
  EXPECT_DOUBLE_EQ(m.cosine, 25.0 / (std::sqrt(25.0) * std::sqrt(30.0)));
  EXPECT_EQ(m.count, 4);
}

TEST(ValueComparison, OppositeValuesHaveCosineMinusOne) {
  EXPECT_DOUBLE_EQ(compare({-1, -2}, {1, 2}).cosine, -1);
}

TEST(ValueComparison, OneNaNIsBeyondAnyBound) {
  for (float bad : {kNaN, kInfinity, -kInfinity}) {
    const ValueMetrics m = compare({1, bad}, {1, 2});
    EXPECT_FALSE(m.finite);
    EXPECT_EQ(m.max_abs, kBeyondAnyBound);
    EXPECT_TRUE(std::isfinite(m.sqnr_db));
  }
}

TEST(ValueComparison, ErrorsAgainstZerosAreBeyondRelativeBounds) {
  const ValueMetrics m = compare({1, 0}, {0, 0});
  EXPECT_EQ(m.max_abs, 1);
  EXPECT_EQ(m.rel_rms, kBeyondAnyBound);
  EXPECT_EQ(m.sqnr_db, -kExactSqnrDb);
  EXPECT_EQ(m.cosine, 0);
}

TEST(ValueComparison, SumsOverSeveralCalls) {
  ValueComparison comparison;
  comparison.add(std::vector<float>{1}, std::vector<float>{1});
  comparison.add(std::vector<float>{5}, std::vector<float>{2});
  EXPECT_EQ(comparison.metrics().max_abs, 3);
  EXPECT_EQ(comparison.metrics().mean_abs, 1.5);
  EXPECT_EQ(comparison.metrics().count, 2);
}

TEST(LogitComparison, TheLargestDivergenceIsThatOfOneRow) {
  LogitComparison comparison;
  const std::vector<float> even = {0, 0}, odd = {std::log(3.0f), 0};
  comparison.add_row(0, even, odd);
  comparison.add_row(0, odd, odd);
  const LogitMetrics m = comparison.metrics();
  EXPECT_NEAR(m.kl_max, 0.75 * std::log(1.5) + 0.25 * std::log(0.5), 1e-7);
  EXPECT_NEAR(m.kl_mean, m.kl_max / 2, 1e-12);
}

TEST(LogitComparison, KlOfShiftedLogitsIsZero) {
  const LogitMetrics m = compare_row({11, 12, 13}, {1, 2, 3});
  EXPECT_NEAR(m.kl_mean, 0, 1e-12);
  EXPECT_EQ(m.top1_agreement, 1);
  EXPECT_EQ(m.values.max_abs, 10);
}

TEST(LogitComparison, KlIsThatOfTheTwoDistributions) {
  // The expected probabilities are 3/4 and 1/4, the actual ones 1/2 and 1/2.
  const auto log3 = static_cast<float>(std::log(3.0));
  const LogitMetrics m = compare_row({0, 0}, {log3, 0});
  EXPECT_NEAR(m.kl_mean, 0.75 * std::log(1.5) + 0.25 * std::log(0.5), 1e-7);
}

TEST(LogitComparison, LargeLogitsDoNotOverflow) {
  const LogitMetrics m = compare_row({1e4F, 0}, {1e4F, 0});
  EXPECT_EQ(m.kl_mean, 0);
  EXPECT_TRUE(m.values.finite);
}

TEST(LogitComparison, AgreementCountsRows) {
  LogitComparison comparison;
  comparison.add_row(0, std::vector<float>{0, 1}, std::vector<float>{0, 2});
  comparison.add_row(0, std::vector<float>{1, 0}, std::vector<float>{0, 2});
  comparison.add_row(0, std::vector<float>{3, 0}, std::vector<float>{3, 2});
  comparison.add_row(0, std::vector<float>{0, kNaN}, std::vector<float>{0, 2});
  EXPECT_EQ(comparison.metrics().top1_agreement, 0.5);
  EXPECT_EQ(comparison.metrics().kl_mean, kBeyondAnyBound);
  EXPECT_EQ(comparison.metrics().kl_max, kBeyondAnyBound);
}

TEST(Worse, TakesTheWorstOfEveryField) {
  const ValueMetrics a = compare({1, 2}, {1, 2});
  const ValueMetrics b = compare({1, 5}, {1, 2});
  for (const ValueMetrics& w : {worse(a, b), worse(b, a)}) {
    EXPECT_EQ(w.max_abs, 3);
    EXPECT_EQ(w.cosine, b.cosine);
    EXPECT_EQ(w.sqnr_db, b.sqnr_db);
    EXPECT_EQ(w.count, 4);
  }
  EXPECT_FALSE(worse(a, compare({kNaN}, {1})).finite);
}

TEST(Argmax, IsTheFirstOfEqualsAndNeverNaN) {
  EXPECT_EQ(runner::argmax(std::vector<float>{1, 3, 3, 2}), 1U);
  EXPECT_EQ(runner::argmax(std::vector<float>{kNaN, 1, kNaN, 2}), 3U);
  EXPECT_EQ(runner::argmax(std::vector<float>{-5}), 0U);
}

TEST(TopMargin, IsTheDistanceToTheSecond) {
  EXPECT_EQ(top_margin(std::vector<float>{1, 4, 2}), 2);
  EXPECT_EQ(top_margin(std::vector<float>{4, 1, 4}), 0);
}

}  // namespace
}  // namespace ferry::proof::parity_test
