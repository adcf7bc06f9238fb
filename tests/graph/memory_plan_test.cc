#include "graph/memory_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace ferry::graph::memory_plan_test {
namespace {

bool live_together(const Lifetime& a, const Lifetime& b) {
  return a.first <= b.last && b.first <= a.last;
}

// Expects offsets that are aligned and inside the arena, and no overlap of lifetimes that overlap
// in time.
void expect_valid(const std::vector<Lifetime>& lives, const MemoryPlan& plan, uint64_t alignment) {
  ASSERT_EQ(plan.offsets.size(), lives.size());
  EXPECT_GE(plan.arena_bytes, plan.lower_bound);
  for (size_t i = 0; i < lives.size(); ++i) {
    ASSERT_EQ(plan.offsets[i] % alignment, 0u);
    ASSERT_LE(plan.offsets[i] + lives[i].bytes, plan.arena_bytes);
    for (size_t j = 0; j < i; ++j) {
      if (lives[i].bytes == 0 || lives[j].bytes == 0 || !live_together(lives[i], lives[j]))
        continue;
      const bool apart = plan.offsets[i] + lives[i].bytes <= plan.offsets[j] ||
                         plan.offsets[j] + lives[j].bytes <= plan.offsets[i];
      ASSERT_TRUE(apart) << i << " and " << j;
    }
  }
}

uint64_t brute_force_peak(const std::vector<Lifetime>& lives) {
  uint64_t peak = 0;
  for (const Lifetime& at : lives) {
    uint64_t sum = 0;
    for (const Lifetime& life : lives) {
      if (life.first <= at.first && at.first <= life.last) sum += life.bytes;
    }
    peak = std::max(peak, sum);
  }
  return peak;
}

std::vector<Lifetime> random_lives(std::mt19937& rng, int count, int longest, uint64_t largest) {
  std::vector<Lifetime> out;
  for (int i = 0; i < count; ++i) {
    const auto first = static_cast<int32_t>(rng() % static_cast<uint32_t>(count));
    const auto length = static_cast<int32_t>(rng() % static_cast<uint32_t>(longest));
    out.push_back({rng() % largest, first, first + length});
  }
  return out;
}

TEST(MemoryPlan, RandomLifetimesNeverOverlap) {
  std::mt19937 rng(1);
  for (int round = 0; round < 60; ++round) {
    // Long lifetimes make the dense case, short ones the sparse case.
    const auto lives = random_lives(rng, 1 + round * 5, round % 2 ? 5 : 300, 1000);
    for (const uint64_t alignment : {uint64_t{16}, uint64_t{1}}) {
      const MemoryPlan plan = plan_memory(lives, alignment);
      expect_valid(lives, plan, alignment);
      EXPECT_EQ(plan.lower_bound, brute_force_peak(lives));
    }
  }
}

TEST(MemoryPlan, ValuesOfDifferentTimesShareMemory) {
  const MemoryPlan plan = plan_memory({{64, 0, 1}, {64, 2, 3}, {32, 1, 2}});
  EXPECT_EQ(plan.offsets[0], plan.offsets[1]);
  EXPECT_EQ(plan.arena_bytes, 96u);
  EXPECT_EQ(plan.lower_bound, 96u);
}

// The result of a node must not overlap an argument that the node reads.
TEST(MemoryPlan, TouchingLifetimesAreApart) {
  const MemoryPlan plan = plan_memory({{16, 0, 1}, {16, 1, 2}});
  EXPECT_NE(plan.offsets[0], plan.offsets[1]);
}

TEST(MemoryPlan, EmptyAndZeroSizedNeedNothing) {
  EXPECT_EQ(plan_memory({}).arena_bytes, 0u);
  const MemoryPlan plan = plan_memory({{0, 0, 9}, {16, 0, 9}});
  EXPECT_EQ(plan.arena_bytes, 16u);
  EXPECT_EQ(plan.offsets, (std::vector<uint64_t>{0, 0}));
}

// Lifetimes as in a decoder: hidden states and tables live long, large intermediates live shortly.
std::vector<Lifetime> decoder_lives(int layers) {
  std::vector<Lifetime> lives = {{4096, 0, layers * 12}, {4096, 0, layers * 12}};
  for (int l = 0; l < layers; ++l) {
    const int t = l * 12;
    lives.push_back({65536, t, t + 6});        // hidden state
    lives.push_back({65536, t + 1, t + 4});    // normed
    lives.push_back({65536, t + 2, t + 5});    // queries
    lives.push_back({16384, t + 3, t + 5});    // keys
    lives.push_back({16384, t + 4, t + 5});    // values
    lives.push_back({65536, t + 5, t + 6});    // attention
    lives.push_back({65536, t + 6, t + 12});   // hidden state
    lives.push_back({65536, t + 7, t + 9});    // normed
    lives.push_back({262144, t + 8, t + 10});  // gate
    lives.push_back({262144, t + 9, t + 10});  // up
    lives.push_back({262144, t + 10, t + 11});
    lives.push_back({65536, t + 11, t + 12});
  }
  return lives;
}

TEST(MemoryPlan, DecoderIsWithinTenPercentOfTheLowerBound) {
  const auto lives = decoder_lives(300);
  const MemoryPlan plan = plan_memory(lives);
  expect_valid(lives, plan, 16);
  EXPECT_LE(plan.arena_bytes * 10, plan.lower_bound * 11);
}

TEST(MemoryPlan, SameLifetimesSamePlan) {
  std::mt19937 rng(2);
  const auto lives = random_lives(rng, 500, 20, 100000);
  EXPECT_EQ(plan_memory(lives).offsets, plan_memory(lives).offsets);
}

}  // namespace
}  // namespace ferry::graph::memory_plan_test
