#include <gtest/gtest.h>
#include <openssl/evp.h>

#include <algorithm>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "core/sha256.h"
#include "core/xxh3.h"
#include "core/xxh3_targets.h"

namespace ferry::xxh3_test {
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

// Passes all of `texts` to their hashes at the same time, in pieces of random lengths.
void update_in_pieces(std::mt19937& random, std::span<const Bytes> texts,
                      std::span<Sha256> hashes) {
  std::vector<std::span<const std::byte>> left(texts.begin(), texts.end());
  for (bool any = true; any;) {
    std::vector<Sha256Update> updates;
    for (size_t i = 0; i < texts.size(); ++i) {
      const auto part = left[i].first(std::min<size_t>(left[i].size(), random() % 700));
      left[i] = left[i].subspan(part.size());
      updates.push_back({&hashes[i], part});
    }
    any = std::ranges::any_of(left, [](auto text) { return !text.empty(); });
    std::erase_if(updates, [](const Sha256Update& update) { return update.data.empty(); });
    while (!updates.empty()) {
      const size_t count = updates.size();
      uint64_t before = 0, after = 0;
      for (const Sha256Update& update : updates) before += update.data.size();
      update_together(updates);
      std::erase_if(updates, [](const Sha256Update& update) { return update.data.empty(); });
      for (const Sha256Update& update : updates) after += update.data.size();
      ASSERT_LT(updates.size(), count);  // each round finishes at least one update
      ASSERT_LT(after, before);
    }
  }
}

TEST(Sha256, DoesNotDependOnHowTheBytesCome) {
  std::mt19937 random(2);
  for (const size_t count : {1, 2, 3, 9, 10, 15, 16, 17, 40}) {
    std::vector<Bytes> texts;
    for (size_t i = 0; i < count; ++i) texts.push_back(random_bytes(random, random() % 5000));
    std::vector<Sha256> hashes(count);
    update_in_pieces(random, texts, hashes);
    for (size_t i = 0; i < count; ++i) {
      EXPECT_EQ(hashes[i].finish(), of_openssl(texts[i])) << i << " of " << count;
      EXPECT_EQ(hashes[i].finish(), of_openssl({}));  // finish() resets the hash
    }
  }
}

// The address of an empty span may be null, and the sanitizers report a copy from null.
TEST(Sha256, NothingInTheMiddleOfABlockChangesNothing) {
  std::mt19937 random(3);
  const Bytes bytes = random_bytes(random, 100);
  Sha256 one, other;
  one.update(std::span(bytes).first(70));
  one.update({});
  std::vector<Sha256Update> nothing = {{&one, {}}, {&other, {}}};
  update_together(nothing);
  one.update(std::span(bytes).subspan(70));
  EXPECT_EQ(one.finish(), of_openssl(bytes));
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
