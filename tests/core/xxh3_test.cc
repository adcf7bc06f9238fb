#include "core/xxh3.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "core/xxh3_targets.h"

namespace ferry::xxh3_test {
namespace {

using Bytes = std::vector<std::byte>;

Bytes random_bytes(std::mt19937& random, size_t count) {
  Bytes bytes(count);
  for (std::byte& b : bytes) b = static_cast<std::byte>(random());
  return bytes;
}

// The expected values are printed by `xxhsum -H2` 0.8.1.
TEST(Xxh3, IsThatOfXxhsum) {
  const auto digest = [](std::string_view text) {
    return to_hex(xxh3(std::as_bytes(std::span(text))));
  };
  EXPECT_EQ(digest(""), "99aa06d3014798d86001c324468d497f");
  EXPECT_EQ(digest("ferry"), "85ca3a0dfcfe59849331f43fcdbd2eb8");
  EXPECT_EQ(digest(std::string(1000, 'x')), "50a1af5a5f2dcf01c0a4877b962cba82");
}

TEST(Xxh3, IsTheSameForEveryInstructionSet) {
#if defined(__x86_64__)
  if (!__builtin_cpu_supports("avx2")) GTEST_SKIP() << "this processor has no AVX2";
  std::mt19937 random(3);
  for (const size_t size : {0, 1, 16, 17, 128, 240, 241, 1024, 5000, 100000}) {
    const Bytes bytes = random_bytes(random, size);
    FastDigest baseline, avx2;
    xxh3_baseline().digest(bytes.data(), size, baseline.data());
    xxh3_avx2().digest(bytes.data(), size, avx2.data());
    EXPECT_EQ(baseline, avx2) << size;
  }
#endif
}

TEST(FastHash, IsTheDigestOfTheDigestsOfBlocks) {
  std::mt19937 random(4);
  const Bytes bytes = random_bytes(random, 2 * kFastDigestBlock + 1000);
  Bytes digests;
  FastHash by_blocks, by_pieces;
  for (size_t at = 0; at < bytes.size(); at += kFastDigestBlock) {
    const size_t size = std::min<size_t>(kFastDigestBlock, bytes.size() - at);
    const FastDigest digest = xxh3(std::span(bytes).subspan(at, size));
    digests.insert(digests.end(), digest.begin(), digest.end());
    by_blocks.add_block(digest);
  }
  for (size_t at = 0; at < bytes.size(); at += 77777) {
    by_pieces.update(std::span(bytes).subspan(at, std::min<size_t>(77777, bytes.size() - at)));
  }
  EXPECT_EQ(by_blocks.finish(), xxh3(digests));
  EXPECT_EQ(by_pieces.finish(), xxh3(digests));
  EXPECT_EQ(by_pieces.finish(), xxh3({}));  // finish() resets the hash
}

}  // namespace
}  // namespace ferry::xxh3_test
