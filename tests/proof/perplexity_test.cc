#include "proof/perplexity.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "proof/parity.h"

namespace ferry::proof::perplexity_test {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

std::vector<TokenWindow> windows(int64_t tokens, int64_t window, int64_t stride) {
  const std::vector<std::vector<int64_t>> sequences = {
      std::vector<int64_t>(static_cast<size_t>(tokens))};
  return windows_of(sequences, {window, stride});
}

TEST(TokenWindows, EachTokenButTheFirstCountsOnce) {
  EXPECT_EQ(windows(10, 4, 2),
            (std::vector<TokenWindow>{{0, 0, 4, 1}, {0, 2, 6, 4}, {0, 4, 8, 6}, {0, 6, 10, 8}}));
  for (int64_t tokens = 1; tokens < 30; ++tokens) {
    for (int64_t window = 2; window < 12; ++window) {
      for (int64_t stride = 1; stride < window; ++stride) {
        int64_t counted = 0, next = 1;
        for (const TokenWindow& w : windows(tokens, window, stride)) {
          EXPECT_EQ(w.counted, next);
          EXPECT_GT(w.counted, w.begin);
          EXPECT_LE(w.tokens(), window);
          next = w.end;
          counted += w.end - w.counted;
        }
        EXPECT_EQ(counted, tokens - 1);
      }
    }
  }
}

TEST(TokenWindows, WithoutOverlapTheFirstTokenOfAWindowDoesNotCount) {
  EXPECT_EQ(windows(9, 4, 4), (std::vector<TokenWindow>{{0, 0, 4, 1}, {0, 4, 8, 5}}));
  EXPECT_EQ(windows(1, 4, 2), std::vector<TokenWindow>());
}

TEST(TokenWindows, SequencesDoNotTouch) {
  const std::vector<std::vector<int64_t>> sequences = {{1, 2, 3}, {}, {4, 5}};
  EXPECT_EQ(windows_of(sequences, {8, 4}), (std::vector<TokenWindow>{{0, 0, 3, 1}, {2, 0, 2, 1}}));
}

TEST(MeanEstimate, IsTheFormula) {
  MeanEstimate estimate;
  for (const double sample : {1.0, 2.0, 4.0, 9.0}) estimate.add(sample);
  EXPECT_DOUBLE_EQ(estimate.mean(), 4);
  // The variance is ((1 + 4 + 16 + 81) / 4 - 16) = 9.5, divided by 3.
  EXPECT_DOUBLE_EQ(estimate.standard_error(), std::sqrt(9.5 / 3));
  MeanEstimate far;
  for (const double sample : {1e9 + 1, 1e9 + 2, 1e9 + 4, 1e9 + 9}) far.add(sample);
  EXPECT_NEAR(far.standard_error(), std::sqrt(9.5 / 3), 1e-6);
  MeanEstimate one;
  one.add(3);
  EXPECT_EQ(one.standard_error(), 0);
}

TEST(Perplexity, OfEqualLogitsIsTheVocabulary) {
  Perplexity perplexity;
  for (int64_t token = 0; token < 8; ++token) {
    ASSERT_TRUE(add_prediction(std::vector<float>(8, 100.0f), token, perplexity));
  }
  EXPECT_NEAR(perplexity.value(), 8, 1e-12);
  EXPECT_NEAR(perplexity.standard_error(), 0, 1e-12);
}

TEST(Perplexity, ComparisonIsThatOfTwoDistributions) {
  // p = 1/2 1/4 1/4, q = 1/4 1/2 1/4: KL(p||q) = ln(2) / 2 - ln(2) / 4.
  const std::vector<float> p = {std::log(2.0f), 0, 0}, q = {0, std::log(2.0f), 0};
  Perplexity perplexity;
  PerplexityComparison comparison;
  ASSERT_TRUE(add_predictions(q, p, 0, perplexity, comparison));
  EXPECT_NEAR(comparison.kl.mean(), std::log(2.0) / 4, 1e-7);
  EXPECT_NEAR(comparison.kl_max(), std::log(2.0) / 4, 1e-7);
  EXPECT_NEAR(perplexity.value(), 4, 1e-6);
  EXPECT_NEAR(comparison.other.value(), 2, 1e-6);
  EXPECT_NEAR(comparison.nll_difference.mean(), std::log(2.0), 1e-6);
  EXPECT_EQ(comparison.top1.mean(), 0);
  ASSERT_TRUE(add_predictions(p, p, 0, perplexity, comparison));
  EXPECT_EQ(comparison.top1.mean(), 0.5);
  EXPECT_NEAR(comparison.kl_quantile(0.5), 0, 1e-12);
  EXPECT_NEAR(comparison.kl_quantile(0.99), std::log(2.0) / 4, 1e-7);
  EXPECT_EQ(comparison.top5.mean(), 1);
  EXPECT_EQ(comparison.flips.mean(), 0.5);
}

TEST(Perplexity, TheFiveLikeliestTokensAndFlipsAreThoseOfTheLogits) {
  // The likeliest are 9 8 7 6 5 and 0 1 7 8 9; tokens 7, 8 and 9 are common.
  const std::vector<float> p = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9};
  const std::vector<float> q = {9, 8, 0, 0, 0, 0, 0, 7, 6, 5};
  Perplexity perplexity;
  PerplexityComparison comparison;
  for (const int64_t token : {9, 0, 4}) {
    ASSERT_TRUE(add_predictions(q, p, token, perplexity, comparison));
  }
  EXPECT_DOUBLE_EQ(comparison.top5.mean(), 0.6);
  EXPECT_DOUBLE_EQ(comparison.flips.mean(), 2.0 / 3);
  EXPECT_EQ(comparison.top1.mean(), 0);
}

TEST(Perplexity, TheErrorOfAQuantileIsThatOfItsShare) {
  PerplexityComparison comparison;
  for (int i = 1; i <= 10000; ++i) comparison.divergences.push_back(static_cast<float>(i));
  // sqrt(0.9 * 0.1 / 10000) = 0.003, which is 30 ranks.
  EXPECT_NEAR(comparison.kl_quantile_error(0.9), 30, 1);
  EXPECT_EQ(comparison.kl_quantile(0.9), 9000);
  EXPECT_EQ(PerplexityComparison().kl_quantile_error(0.9), 0);
}

TEST(Perplexity, WhatIsNoDistributionIsRefused) {
  Perplexity perplexity;
  PerplexityComparison comparison;
  const std::vector<float> half = {0, -kInfinity}, all = {0, 0};
  EXPECT_TRUE(add_prediction(half, 0, perplexity));
  EXPECT_EQ(add_prediction(half, 1, perplexity).error().message, "token 1 has probability 0");
  for (const float bad : {std::nanf(""), kInfinity}) {
    const std::vector<float> row = {0, bad};
    EXPECT_EQ(add_prediction(row, 0, perplexity).error().message, "the logits are not finite");
  }
  EXPECT_FALSE(add_prediction(std::vector<float>(2, -kInfinity), 0, perplexity));
  // The other model may have less entropy than this one, but not the other way round.
  EXPECT_TRUE(add_predictions(all, half, 0, perplexity, comparison));
  EXPECT_FALSE(add_predictions(half, all, 0, perplexity, comparison));
}

}  // namespace
}  // namespace ferry::proof::perplexity_test
