#include "core/sha256.h"

#include <gtest/gtest.h>
#include <openssl/evp.h>

#include <algorithm>
#include <random>
#include <span>
#include <string_view>
#include <vector>

namespace ferry::sha256_test {
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

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

// The digests are the examples of FIPS 180-4.
TEST(Sha256, EqualsPublishedDigests) {
  EXPECT_EQ(to_hex(sha256({})), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(to_hex(sha256(bytes_of("abc"))),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

TEST(Sha256, PiecesAndReuseMakeNoDifference) {
  Sha256 hash;
  hash.update(bytes_of("a"));
  hash.update(bytes_of("bc"));
  EXPECT_EQ(hash.finish(), sha256(bytes_of("abc")));
  hash.update(bytes_of("abc"));
  EXPECT_EQ(hash.finish(), sha256(bytes_of("abc")));
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

}  // namespace
}  // namespace ferry::sha256_test
