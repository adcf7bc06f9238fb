#include "runner/sampler.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <random>
#include <span>
#include <vector>

namespace ferry::runner::sampler_test {
namespace {

const std::vector<float> kLogits = {0.0F, 2.0F, -1.0F, 1.0F};

std::map<int64_t, double> frequencies(const SamplingOptions& options) {
  constexpr int kDraws = 200000;
  auto sampler = Sampler::make(options);
  std::map<int64_t, double> seen;
  for (int i = 0; i < kDraws; ++i) seen[*sampler->sample(kLogits)] += 1.0 / kDraws;
  return seen;
}

// Returns the probabilities of softmax(logits / temperature) over `kept`.
std::map<int64_t, double> expected(double temperature, const std::vector<int64_t>& kept) {
  std::map<int64_t, double> p;
  double sum = 0;
  for (const int64_t id : kept) sum += std::exp(kLogits[static_cast<size_t>(id)] / temperature);
  for (const int64_t id : kept) {
    p[id] = std::exp(kLogits[static_cast<size_t>(id)] / temperature) / sum;
  }
  return p;
}

TEST(Sampler, DrawsWithTheProbabilitiesOfTheSoftmax) {
  struct Case {
    SamplingOptions options;
    std::vector<int64_t> kept;
  };
  // softmax(kLogits) is 0.087, 0.644, 0.032, 0.237.
  const Case cases[] = {
      {{.temperature = 1}, {0, 1, 2, 3}},
      {{.temperature = 0.5, .seed = 3}, {0, 1, 2, 3}},
      {{.temperature = 2, .top_k = 2}, {1, 3}},
      {{.temperature = 1, .top_p = 0.6}, {1}},
      {{.temperature = 1, .top_p = 0.7}, {1, 3}},
      {{.temperature = 1, .top_p = 0.95}, {0, 1, 3}},
      // Among the two tokens that top k leaves, the first has probability 0.731.
      {{.temperature = 1, .top_k = 2, .top_p = 0.7}, {1}},
      // The ratios to the largest probability are 0.087 / 0.644 = 0.135 and 0.237 / 0.644 = 0.368.
      {{.temperature = 1, .min_p = 0.13}, {0, 1, 3}},
      {{.temperature = 1, .min_p = 0.14}, {1, 3}},
      {{.temperature = 1, .min_p = 1}, {1}},
      // The temperature is applied first: at 2 the ratios are the square roots, 0.368 and 0.607.
      {{.temperature = 2, .min_p = 0.36}, {0, 1, 3}},
      {{.temperature = 2, .min_p = 0.38}, {1, 3}},
      {{.temperature = 1, .top_k = 3, .min_p = 0.04}, {0, 1, 3}},
      {{.temperature = 1, .top_p = 0.7, .min_p = 0.04}, {1, 3}},
  };
  for (const auto& [options, kept] : cases) {
    const auto got = frequencies(options), want = expected(options.temperature, kept);
    ASSERT_EQ(got.size(), want.size());
    // The tolerance is four standard deviations of a frequency of a half.
    for (const auto& [id, p] : want) EXPECT_NEAR(got.at(id), p, 0.0045) << id;
  }
}

TEST(Sampler, TemperatureZeroTakesTheLargest) {
  auto sampler = Sampler::make({.temperature = 0, .top_k = 3, .top_p = 0.5, .seed = 9});
  for (int i = 0; i < 10; ++i) EXPECT_EQ(*sampler->sample(kLogits), 1);
}

// The values are computed by hand as RepetitionPenaltyLogitsProcessor of transformers defines it:
// the logit of a token that occurred is divided by the penalty if it is not negative, else
// multiplied.
TEST(Sampler, PenalisesWhatWasThereAsTheReferenceDoes) {
  const std::vector<float> logits = {3.0F, 2.0F, -1.0F, -1.5F, 0.0F};
  const auto choice = [&](double penalty, const std::vector<int64_t>& prompt,
                          const std::vector<int64_t>& answer, const std::vector<float>& row) {
    return Sampler::make({.repetition_penalty = penalty})->sample(row, prompt, answer).value();
  };
  EXPECT_EQ(choice(1, {0}, {}, logits), 0);
  EXPECT_EQ(choice(1.25, {0}, {}, logits), 0);  // 3 / 1.25 = 2.4 > 2
  EXPECT_EQ(choice(1.6, {0}, {}, logits), 1);   // 3 / 1.6 = 1.875 < 2
  EXPECT_EQ(choice(1.6, {}, {0}, logits), 1);   // counts in the answer as in the prompt
  // The penalty applies once, however often the token occurred: 3 / 1.25 / 1.25 would be 1.92.
  EXPECT_EQ(choice(1.25, {0, 0, 4}, {0}, logits), 0);
  EXPECT_EQ(choice(1.6, {0, 1}, {}, logits), 0);  // 1.875 and 1.25
  const std::vector<float> negative = {-1.0F, -1.5F};
  EXPECT_EQ(choice(1.4, {0}, {}, negative), 0);  // -1.4
  EXPECT_EQ(choice(1.6, {0}, {}, negative), 1);  // -1.6
  EXPECT_EQ(choice(0.5, {1}, {}, negative), 1);  // a penalty below 1 is a reward: -0.75
  // The arithmetic is f32: 3 / 1.5F is 2 exactly, and the first of equal logits is chosen.
  EXPECT_EQ(choice(1.5, {0}, {}, logits), 0);
  EXPECT_EQ(choice(1.5, {1}, {}, std::vector<float>{2.0F, 3.0F}), 0);
  // Ids outside of the row change nothing.
  EXPECT_EQ(choice(2, {-1, 5, int64_t{1} << 40}, {}, logits), 0);
}

// The logits are 0, 2 / 2, -1 * 2, 1: the penalty comes before the temperature.
TEST(Sampler, DrawsFromPenalisedLogits) {
  auto sampler = Sampler::make({.repetition_penalty = 2, .temperature = 1, .seed = 5});
  const std::vector<int64_t> prompt = {1}, answer = {2};
  constexpr int kDraws = 200000;
  std::map<int64_t, double> seen;
  for (int i = 0; i < kDraws; ++i) seen[*sampler->sample(kLogits, prompt, answer)] += 1.0 / kDraws;
  const double sum = 1 + 2 * std::exp(1.0) + std::exp(-2.0);
  EXPECT_NEAR(seen[0], 1 / sum, 0.0045);
  EXPECT_NEAR(seen[1], std::exp(1.0) / sum, 0.0045);
  EXPECT_NEAR(seen[2], std::exp(-2.0) / sum, 0.0045);
  EXPECT_NEAR(seen[3], std::exp(1.0) / sum, 0.0045);
}

TEST(Sampler, RefusesWhatIsNoProbability) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float inf = std::numeric_limits<float>::infinity();
  for (const double temperature : {0, 1}) {
    auto sampler = Sampler::make({.temperature = temperature});
    EXPECT_FALSE(sampler->sample(std::vector<float>{1, nan}));
    EXPECT_FALSE(sampler->sample(std::vector<float>{nan, 1}));
    EXPECT_FALSE(sampler->sample(std::vector<float>{1, inf}));
    EXPECT_FALSE(sampler->sample(std::vector<float>{-inf, -inf}));
    EXPECT_EQ(*sampler->sample(std::vector<float>{-inf, 1}), 1);
  }
  for (const SamplingOptions& bad :
       {SamplingOptions{.temperature = nan}, SamplingOptions{.temperature = -1},
        SamplingOptions{.top_k = -1}, SamplingOptions{.top_p = 0}, SamplingOptions{.top_p = 1.5},
        SamplingOptions{.min_p = -0.1}, SamplingOptions{.min_p = 1.1},
        SamplingOptions{.min_p = nan}, SamplingOptions{.repetition_penalty = 0},
        SamplingOptions{.repetition_penalty = -1}, SamplingOptions{.repetition_penalty = nan}}) {
    EXPECT_FALSE(Sampler::make(bad));
  }
}

// The expected numbers are the first ones of the published generator for this state.
TEST(Random, IsTheGeneratorThatItSays) {
  Random random(0);
  EXPECT_EQ(random.next(), 0x99EC5F36CB75F2B4U);
  EXPECT_EQ(random.next(), 0xBF6E1F784956452AU);
}

// Computes argmax one value after the other.
size_t first_largest(std::span<const float> row) {
  size_t best = 0;
  for (size_t i = 1; i < row.size(); ++i) {
    if (row[i] > row[best] || std::isnan(row[best])) best = i;
  }
  return best;
}

TEST(ArgmaxTest, IsTheFirstOfTheLargestValuesWhateverLiesBesideThem) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  const float kNan = std::numeric_limits<float>::quiet_NaN();
  std::minstd_rand bits(7);
  for (size_t size : {1, 2, 15, 16, 17, 1023, 1024, 1025, 3000}) {
    for (int special : {0, 3, 40, 100}) {  // percentage of special values
      for (int round = 0; round < 5; ++round) {
        std::vector<float> row(size);
        for (float& v : row) {
          v = static_cast<float>(bits() % 50) - 25;
          if (static_cast<int>(bits() % 100) < special) v = bits() % 2 == 0 ? kNan : -kInf;
        }
        ASSERT_EQ(argmax(row), first_largest(row)) << size << " " << special;
      }
    }
  }
  EXPECT_EQ(argmax(std::vector<float>{kNan, 1, kInf, kInf}), 2u);
  EXPECT_EQ(argmax(std::vector<float>{kNan, kNan}), 1u);
}

}  // namespace
}  // namespace ferry::runner::sampler_test
