// Shares of bytes among matrices, by hand and against the best of all combinations.
#include "calibration/bit_allocation.h"

#include <gtest/gtest.h>

#include <random>

namespace ferry::calibration {
namespace {

using Choices = std::vector<BitChoice>;

double cost_of(const std::vector<Choices>& matrices, const std::vector<size_t>& chosen) {
  double cost = 0;
  for (size_t m = 0; m < matrices.size(); ++m) cost += matrices[m][chosen[m]].cost;
  return cost;
}
uint64_t bytes_of(const std::vector<Choices>& matrices, const std::vector<size_t>& chosen) {
  uint64_t bytes = 0;
  for (size_t m = 0; m < matrices.size(); ++m) bytes += matrices[m][chosen[m]].bytes;
  return bytes;
}

TEST(BitAllocation, BytesGoWhereTheyTakeMostFromTheCost) {
  const std::vector<Choices> matrices = {{{4, 1.0}, {8, 0.1}}, {{4, 5.0}, {8, 0.1}}};
  EXPECT_EQ(allocate_bits(matrices, 8), (std::vector<size_t>{0, 0}));
  EXPECT_EQ(allocate_bits(matrices, 12), (std::vector<size_t>{0, 1}));
  EXPECT_EQ(allocate_bits(matrices, 15), (std::vector<size_t>{0, 1}));
  EXPECT_EQ(allocate_bits(matrices, 16), (std::vector<size_t>{1, 1}));
  EXPECT_EQ(allocate_bits(matrices, UINT64_MAX), (std::vector<size_t>{1, 1}));
}

TEST(BitAllocation, TheSmallestChoicesMustFit) {
  const std::vector<Choices> matrices = {{{8, 0}, {4, 1}}, {{5, 0}}};
  EXPECT_EQ(allocate_bits(matrices, 8), std::nullopt);
  EXPECT_EQ(allocate_bits(matrices, 9), (std::vector<size_t>{1, 0}));
  EXPECT_EQ(allocate_bits(std::vector<Choices>{}, 0), std::vector<size_t>{});
}

TEST(BitAllocation, AChoiceThatIsLargerAndNoBetterIsNeverTaken) {
  // The second choice costs more bytes and more divergence; the third is worth less per byte than
  // the fourth, which it precedes.
  const std::vector<Choices> matrices = {{{4, 1.0}, {5, 1.5}, {6, 0.99}, {8, 0.0}}};
  EXPECT_EQ(allocate_bits(matrices, 7), (std::vector<size_t>{0}));
  EXPECT_EQ(allocate_bits(matrices, 8), (std::vector<size_t>{3}));
}

TEST(BitAllocation, EqualGainsGoToTheFirst) {
  const std::vector<Choices> matrices = {{{4, 1}, {8, 0}}, {{4, 1}, {8, 0}}};
  EXPECT_EQ(allocate_bits(matrices, 12), (std::vector<size_t>{1, 0}));
}

// The greedy choice may differ from the best one by the bytes that are left over.
TEST(BitAllocation, IsNearTheBestOfAllCombinations) {
  std::mt19937 random(7);
  for (int round = 0; round < 50; ++round) {
    std::vector<Choices> matrices;
    for (int m = 0; m < 6; ++m) {
      const uint64_t size = 10 + random() % 30;
      const double cost = 1 + static_cast<double>(random() % 100);
      matrices.push_back({{size, cost}, {size + size / 8, cost * 0.8}, {2 * size, cost * 0.01}});
    }
    const std::vector<size_t> smallest(6, 0);
    const uint64_t least = bytes_of(matrices, smallest), budget = least + random() % least;
    double best = cost_of(matrices, smallest), best_with_less = best;
    for (int code = 0; code < 729; ++code) {
      std::vector<size_t> chosen;
      for (int rest = code, m = 0; m < 6; ++m, rest /= 3) chosen.push_back(rest % 3);
      const uint64_t bytes = bytes_of(matrices, chosen);
      const double cost = cost_of(matrices, chosen);
      if (bytes <= budget) best = std::min(best, cost);
      if (bytes + 40 <= budget) best_with_less = std::min(best_with_less, cost);
    }
    const auto chosen = allocate_bits(matrices, budget);
    ASSERT_TRUE(chosen);
    EXPECT_LE(bytes_of(matrices, *chosen), budget);
    EXPECT_GE(cost_of(matrices, *chosen), best);
    EXPECT_LE(cost_of(matrices, *chosen), best_with_less + 1e-9);
  }
}

}  // namespace
}  // namespace ferry::calibration
