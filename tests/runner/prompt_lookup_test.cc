// Guesses of the next tokens from earlier ones.
#include "runner/prompt_lookup.h"

#include <gtest/gtest.h>

namespace ferry::runner::prompt_lookup_test {
namespace {

using Tokens = std::vector<int64_t>;

Tokens guess(PromptLookup& lookup, int64_t token, size_t limit = 100) {
  const std::span<const int64_t> call = lookup.guess(token, limit).value();
  return {call.begin(), call.end()};
}

TEST(PromptLookup, GuessesWhatFollowedTheSameTokens) {
  PromptLookup lookup(3);
  lookup.add(Tokens{1, 2, 3, 4, 5, 6, 1, 2});
  EXPECT_EQ(guess(lookup, 3), (Tokens{3, 4, 5, 6}));
  EXPECT_EQ(guess(lookup, 9), (Tokens{9}));
  EXPECT_EQ(guess(lookup, 3, 1), (Tokens{3, 4}));
  EXPECT_EQ(guess(lookup, 3, 0), (Tokens{3}));
}

TEST(PromptLookup, OneTokenInCommonIsNoMatch) {
  PromptLookup lookup(3);
  lookup.add(Tokens{1, 2, 3});
  EXPECT_EQ(guess(lookup, 1), (Tokens{1}));
}

TEST(PromptLookup, PrefersTheLongestMatchAndThenTheLatest) {
  PromptLookup lookup(1);
  lookup.add(Tokens{7, 1, 2, 50, 8, 1, 2, 60, 9, 1, 2, 70, 8, 1});
  EXPECT_EQ(guess(lookup, 2), (Tokens{2, 60}));
  lookup.restart();
  lookup.add(Tokens{1, 2, 50, 1, 2, 60, 5, 1});
  EXPECT_EQ(guess(lookup, 2), (Tokens{2, 60}));
}

TEST(PromptLookup, GuessesFewerTokensAfterWrongOnes) {
  PromptLookup lookup(8);
  Tokens period;
  for (int64_t i = 0; i < 40; ++i) period.push_back(i % 20);
  lookup.add(period);
  EXPECT_EQ(guess(lookup, 0).size(), 9U);
  lookup.learn(8, 0);
  EXPECT_EQ(guess(lookup, 0).size(), 5U);
  lookup.learn(4, 4);
  EXPECT_EQ(guess(lookup, 0).size(), 9U);
}

}  // namespace
}  // namespace ferry::runner::prompt_lookup_test
