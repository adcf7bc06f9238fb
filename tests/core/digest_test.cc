#include <gtest/gtest.h>
#include <openssl/evp.h>

#include <algorithm>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/sha256.h"
#include "core/xxh3.h"
#include "core/xxh3_targets.h"

namespace ferry::digest_test {
namespace {

using Bytes = std::vector<std::byte>;

Bytes random_bytes(std::mt19937& random, size_t count) {
  Bytes bytes(count);
  for (std::byte& b : bytes) b = static_cast<std::byte>(random());
  return bytes;
}

Digest of_openssl(std::span<const std::byte> bytes) {
  Digest digest;
  unsigned size = 0;
  EXPECT_EQ(EVP_Digest(bytes.data(), bytes.size(), reinterpret_cast<unsigned char*>(digest.data()),
                       &size, EVP_sha256(), nullptr),
            1);
  return digest;
}

TEST(Sha256, IsThatOfOpenSslForEveryLength) {
  std::mt19937 random(1);
  for (size_t size = 0; size < 300; ++size) {
    const Bytes bytes = random_bytes(random, size);
    EXPECT_EQ(sha256(bytes), of_openssl(bytes)) << size;
  }
}

TEST(Sha256, DoesNotDependOnHowTheBytesCome) {
  std::mt19937 random(2);
  for (int i = 0; i < 100; ++i) {
    const Bytes a = random_bytes(random, random() % 1000),
                b = random_bytes(random, random() % 1000);
    std::span<const std::byte> left_a = a, left_b = b;
    Sha256 of_a, of_b;
    while (!left_a.empty() || !left_b.empty()) {
      const auto part_a = left_a.first(std::min<size_t>(left_a.size(), random() % 400));
      const auto part_b = left_b.first(std::min<size_t>(left_b.size(), random() % 400));
      const auto [done_a, done_b] = update_both(of_a, part_a, of_b, part_b);
      of_a.update(part_a.subspan(done_a));
      of_b.update(part_b.subspan(done_b));
      left_a = left_a.subspan(part_a.size());
      left_b = left_b.subspan(part_b.size());
    }
    EXPECT_EQ(of_a.finish(), of_openssl(a));
    EXPECT_EQ(of_b.finish(), of_openssl(b));
    EXPECT_EQ(of_a.finish(), of_openssl({}));  // it starts anew
  }
}

// The address of an empty span may be null, which the sanitizers do not let pass as that of a copy.
TEST(Sha256, NothingInTheMiddleOfABlockChangesNothing) {
  std::mt19937 random(3);
  const Bytes bytes = random_bytes(random, 100);
  Sha256 one, other;
  one.update(std::span(bytes).first(70));
  one.update({});
  EXPECT_EQ(update_both(one, {}, other, {}), std::make_pair(size_t{0}, size_t{0}));
  one.update(std::span(bytes).subspan(70));
  EXPECT_EQ(one.finish(), of_openssl(bytes));
}

// As `xxhsum -H2` 0.8.1 prints them.
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
  EXPECT_EQ(by_pieces.finish(), xxh3({}));  // it starts anew
}

}  // namespace
}  // namespace ferry::digest_test
