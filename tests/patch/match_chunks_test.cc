#include "patch/match.h"

#include <gtest/gtest.h>

#include <random>
#include <set>

namespace ferry::chunks_test {
namespace {

using Bytes = std::vector<std::byte>;

Bytes random_bytes(size_t size) {
  std::mt19937 random(1);
  Bytes bytes(size);
  for (std::byte& b : bytes) b = static_cast<std::byte>(random());
  return bytes;
}

std::vector<std::span<const std::byte>> cut(std::span<const std::byte> bytes, uint64_t average) {
  const patch::Chunker chunker(average);
  std::vector<std::span<const std::byte>> chunks;
  while (!bytes.empty()) {
    chunks.push_back(bytes.first(chunker.first_chunk(bytes)));
    bytes = bytes.subspan(chunks.back().size());
  }
  return chunks;
}

TEST(Chunker, ChunksHaveTheirSizesAndCoverTheBytes) {
  const Bytes bytes = random_bytes(3'000'000);
  const auto chunks = cut(bytes, 4096);
  EXPECT_NEAR(static_cast<double>(bytes.size()) / static_cast<double>(chunks.size()), 4096, 1200);
  for (size_t i = 0; i + 1 < chunks.size(); ++i) {
    EXPECT_GT(chunks[i].size(), 1000U);
    EXPECT_LE(chunks[i].size(), 16384U);
  }
  EXPECT_EQ(cut(Bytes(100'000), 4096)[0].size(), 16384U);
  EXPECT_EQ(cut(Bytes(10), 4096)[0].size(), 10U);
}

TEST(Chunker, ChunksAreFoundAgainBehindAnInsertion) {
  const Bytes bytes = random_bytes(1'000'000);
  Bytes more(12345, std::byte{3});
  more.insert(more.end(), bytes.begin(), bytes.end());
  std::set<uint64_t> known;
  for (const auto& chunk : cut(bytes, 4096)) known.insert(patch::chunk_hash(chunk));
  size_t found = 0;
  for (const auto& chunk : cut(more, 4096)) {
    if (known.contains(patch::chunk_hash(chunk))) found += chunk.size();
  }
  EXPECT_GT(found, 950'000U);
}

TEST(ChunkIndex, FindsTheFirstOfEqualChunks) {
  const patch::ChunkIndex index({{5, 100, 1, 10}, {5, 50, 1, 10}, {5, 70, 1, 11}, {4, 0, 2, 10}});
  ASSERT_NE(index.find(5, 10), nullptr);
  EXPECT_EQ(index.find(5, 10)->offset, 50U);
  EXPECT_EQ(index.find(5, 11)->offset, 70U);
  EXPECT_EQ(index.find(5, 12), nullptr);
  EXPECT_EQ(index.find(6, 10), nullptr);
  EXPECT_EQ(patch::ChunkIndex().find(1, 1), nullptr);
}

TEST(AverageChunk, KeepsTheIndexBounded) {
  EXPECT_EQ(patch::average_chunk(0), 4096U);
  EXPECT_EQ(patch::average_chunk(uint64_t{4} << 30), 4096U);
  EXPECT_EQ(patch::average_chunk(uint64_t{1} << 40), uint64_t{1} << 20);
}

TEST(CommonBytes, AreCounted) {
  const Bytes a = random_bytes(100);
  Bytes b = a;
  b[37] ^= std::byte{1};
  EXPECT_EQ(patch::common_prefix(a, b), 37U);
  EXPECT_EQ(patch::common_suffix(a, b), 62U);
  EXPECT_EQ(patch::common_prefix(a, std::span(a).first(9)), 9U);
  EXPECT_EQ(patch::common_suffix(a, {}), 0U);
}

}  // namespace
}  // namespace ferry::chunks_test
