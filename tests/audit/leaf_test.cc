#include "audit/leaf.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace ferry::audit::leaf_test {
namespace {

Claim claim(uint64_t offset, uint64_t bytes, const std::string& name, int level = 0) {
  return {Leaf{.offset = offset, .bytes = bytes, .kind = LeafKind::kWeight, .name = name}, level};
}

// Writes leaves as "0+8 a, 8+2 padding".
std::string text_of(const std::vector<Leaf>& leaves) {
  std::string text;
  for (const Leaf& leaf : leaves) {
    if (!text.empty()) text += ", ";
    text += std::to_string(leaf.offset) + "+" + std::to_string(leaf.bytes) + " ";
    text += leaf.name.empty() ? std::string(name_of(leaf.kind)) : leaf.name;
    if (leaf.part > 0) text += "#" + std::to_string(leaf.part);
    for (const std::string& name : leaf.tied) text += "=" + name;
  }
  return text;
}

std::string tiled(uint64_t bytes, std::vector<Claim> claims) {
  return text_of(tile(0, bytes, std::move(claims), padding_rule(bytes)));
}

TEST(Tiling, GapsArePaddingOnlyIfTheyAlignWhatFollows) {
  EXPECT_EQ(tiled(200, {claim(0, 60, "a"), claim(64, 100, "b")}),
            "0+60 a, 60+4 padding, 64+100 b, 164+36 padding");
  EXPECT_EQ(tiled(200, {claim(0, 60, "a"), claim(66, 134, "b")}),
            "0+60 a, 60+6 unaccounted, 66+134 b");
  EXPECT_EQ(tiled(1000, {claim(0, 60, "a")}), "0+60 a, 60+940 unaccounted");
  EXPECT_EQ(tiled(0, {}), "");
}

TEST(Tiling, EqualRangesAreOneLeafWithSeveralNames) {
  EXPECT_EQ(tiled(8, {claim(0, 8, "embedding"), claim(0, 8, "head")}), "0+8 embedding=head");
}

TEST(Tiling, HigherLevelsLieOnTop) {
  EXPECT_EQ(tiled(10, {claim(0, 10, "file"), claim(2, 3, "blob", 1), claim(3, 1, "x", 2)}),
            "0+2 file, 2+1 blob, 3+1 x, 4+1 blob#1, 5+5 file#1");
}

TEST(Tiling, OverlapsBelongToTheFirstAndWhatIsCoveredIsTied) {
  EXPECT_EQ(tiled(10, {claim(0, 6, "a"), claim(4, 6, "b"), claim(5, 1, "c")}), "0+6 a=c, 6+4 b");
}

TEST(Tiling, WhatLeavesTheFileIsIgnored) {
  EXPECT_EQ(tiled(8, {claim(4, 8, "a"), claim(UINT64_MAX, 2, "b"), claim(0, 8, "c")}), "0+8 c");
}

TEST(Tiling, ADigestIsOfTheWholeRange) {
  std::vector<Claim> claims = {claim(0, 4, "a"), claim(2, 4, "b"), claim(8, 4, "c")};
  for (Claim& each : claims) each.leaf.sha256 = "d";
  const std::vector<Leaf> leaves = tile(0, 12, std::move(claims), padding_rule(12));
  ASSERT_EQ(text_of(leaves), "0+4 a, 4+2 b, 6+2 padding, 8+4 c");
  EXPECT_EQ(leaves[0].sha256, "d");
  EXPECT_EQ(leaves[1].sha256, "");
  EXPECT_EQ(leaves[3].sha256, "d");
}

// Whatever is claimed, each byte is in one leaf: that of the highest level that claims it.
TEST(Tiling, RandomClaimsTileTheFile) {
  std::mt19937 random(7);
  const auto below = [&](uint64_t limit) { return random() % limit; };
  for (int round = 0; round < 300; ++round) {
    const uint64_t bytes = 1 + below(60);
    std::vector<Claim> claims;
    std::vector<int> level(bytes, -1);
    for (uint64_t i = 0; i < below(12); ++i) {
      const uint64_t offset = below(bytes), size = below(bytes - offset + 1);
      claims.push_back(claim(offset, size, "t" + std::to_string(i), static_cast<int>(below(3))));
      for (uint64_t at = offset; at < offset + size; ++at) {
        level[at] = std::max(level[at], claims.back().level);
      }
    }
    const std::vector<Claim> given = claims;
    uint64_t end = 0;
    for (const Leaf& leaf : tile(3, bytes, std::move(claims), padding_rule(bytes))) {
      EXPECT_EQ(leaf.file, 3U);
      if (leaf.bytes == 0) continue;
      ASSERT_EQ(leaf.offset, end);
      end += leaf.bytes;
      for (uint64_t at = leaf.offset; at < end; ++at) {
        if (leaf.name.empty()) {
          EXPECT_EQ(level[at], -1);
          continue;
        }
        const auto owner = std::ranges::find_if(
            given, [&](const Claim& each) { return each.leaf.name == leaf.name; });
        ASSERT_NE(owner, given.end());
        EXPECT_EQ(owner->level, level[at]);
      }
    }
    EXPECT_EQ(end, bytes);
  }
}

}  // namespace
}  // namespace ferry::audit::leaf_test
