// Blocks of GGUF, compared with those of ggml: digests of the results of ggml_quantize_chunk() of
// ggml 0.27 for the same values (testdata/README.md).
#include "graph/quantization/block_encoder.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "core/sha256.h"
#include "core/thread_pool.h"
#include "graph/recipe.h"
#include "tests/graph/random_source.h"

namespace ferry::graph::block_encoder_test {
namespace {

constexpr size_t kSuperBlocks = 640, kValues = 256;

// Five kinds of blocks take turns: any values; few values that are not 0; positive values; few
// different values; groups of zeros. Magnitudes go down to where f16 scales underflow. All values
// are exact in f32.
std::vector<float> values() {
  std::vector<float> values;
  uint64_t state = 1;
  for (size_t block = 0; block < kSuperBlocks; ++block) {
    for (size_t i = 0; i < kValues; ++i) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      int64_t value = static_cast<int64_t>(state >> 40) - (1 << 23);
      const size_t kind = block % 5;
      if (kind == 1 && (state >> 33 & 7) != 0) value = 0;
      if (kind == 2) value = std::abs(value);
      if (kind == 3) value = ((value % 9) + 9) % 9 - 4;
      if (kind == 4 && i / 16 % 3 == 0) value = 0;
      const int exponent = -static_cast<int>(block % 48 + 10);
      values.push_back(std::ldexp(static_cast<float>(value), exponent));
    }
  }
  return values;
}

TEST(BlockEncoder, MakesTheBlocksOfGgml) {
  const std::pair<std::string, std::string> kDigests[] = {
      {"q4_0", "c3cec7dd1b6128f20cc031895850aeb824c9b4ae3e11adbfa4e3ee89fbeae217"},
      {"q5_0", "fef50b04d1ff7eb481779eca0a41554b56a2e1af497f2d37f2e4e035c794729b"},
      {"q5_1", "9d964bcacb16164de557e41565799f0e701f8bd8e42ada34c9bbef7ce3430b53"},
      {"q8_0", "0ce74b390d2d41d08658a0b5bbe906ba4e085220ae0db3fd1c8f4f0b09c522a0"},
      {"q4_k", "be1c0eab19749da91dbc684042637c62783bf851262d59d6318c8fb75543bd6c"},
      {"q5_k", "0beff33ed0b6109b7bb3d228424f546348f720f7ff9a084e047eba2ee9c14c1c"},
      {"q6_k", "d35970adac639d1480f8b777c2ecddcb1e1b0e09e38ca5decd860b8d2f4e2a0a"}};
  const std::vector<float> all = values();
  EXPECT_EQ(to_hex(sha256(std::as_bytes(std::span(all)))),
            "d455b886ece2611ab08ad42e3bdd62fd38ea02ae26766bcd6501b10c7ea1e00b");
  for (const auto& [name, digest] : kDigests) {
    const BlockEncoder* encoder = find_block_encoder(name);
    ASSERT_NE(encoder, nullptr) << name;
    const size_t blocks = all.size() / encoder->elements;
    std::vector<std::byte> out(blocks * encoder->bytes);
    encoder->encode({.values = all.data(), .rows = blocks, .columns = encoder->elements}, out.data());
    EXPECT_EQ(to_hex(sha256(out)), digest) << name;
    EXPECT_EQ(count_unencodable(*encoder, all.data(), blocks, out.data()), 0) << name;
  }
  EXPECT_EQ(find_block_encoder("q8_1"), nullptr);
}

// A scale beyond f16 would make all values of its block infinite.
TEST(BlockEncoder, CountsWhatNoBlockCanStandFor) {
  const float infinity = std::numeric_limits<float>::infinity();
  for (const char* name : {"q4_0", "q5_0", "q5_1", "q8_0", "q4_k", "q5_k", "q6_k"}) {
    const BlockEncoder& encoder = *find_block_encoder(name);
    std::vector<float> two(2 * encoder.elements, 1.0f);
    two[1] = -1.0f;
    std::vector<std::byte> out(2 * encoder.bytes);
    const auto count = [&] {
      encoder.encode({.values = two.data(), .rows = 2, .columns = encoder.elements}, out.data());
      return count_unencodable(encoder, two.data(), 2, out.data());
    };
    EXPECT_EQ(count(), 0) << name;
    two[0] = 1e9f;
    EXPECT_EQ(count(), encoder.elements) << name;
    two[0] = infinity;
    EXPECT_GE(count(), 1) << name;
    two[0] = std::nanf("");
    EXPECT_GE(count(), 1) << name;
  }
}

// Adds a matrix of random values.
size_t add_matrix(MemorySource& source, DType dtype, int64_t rows, int64_t columns) {
  Random random{7};
  std::vector<std::byte> bytes;
  for (int64_t i = 0; i < rows * columns; ++i) {
    append(bytes, dtype, static_cast<float>(random.below(2001)) / 1000 - 1);
  }
  return source.add(dtype, {rows, columns}, std::move(bytes));
}

std::vector<std::byte> rows_of(const Recipe& recipe, const TensorSource& source, int64_t first,
                               int64_t rows) {
  std::vector<std::byte> out(static_cast<uint64_t>(rows) * row_bytes(recipe, 0));
  const std::span<std::byte> outs[] = {out};
  EXPECT_TRUE(materialize_rows(recipe, source, first, rows, outs));
  return out;
}

TEST(BlockRecipe, AnyRowsAndBytesAreThoseOfTheWhole) {
  MemorySource source;
  add_matrix(source, DType::kBF16, 24, 256);
  for (const char* name : {"q8_0", "q4_k"}) {
    Recipe recipe = whole_tensor(source, 0);
    ASSERT_TRUE(recipe.encode(*find_block_encoder(name), "w"));
    EXPECT_EQ(row_count(recipe), 24);
    const std::vector<std::byte> all = rows_of(recipe, source, 0, 24);
    EXPECT_EQ(all.size(), recipe.output().bytes());
    const std::vector<std::byte> middle = rows_of(recipe, source, 5, 3);
    const auto bytes = static_cast<std::ptrdiff_t>(row_bytes(recipe, 0));
    EXPECT_TRUE(std::equal(middle.begin(), middle.end(), all.begin() + 5 * bytes));
    std::vector<std::byte> odd(777);
    ASSERT_TRUE(materialize(recipe, source, 0, 1001, odd));
    EXPECT_TRUE(std::equal(odd.begin(), odd.end(), all.begin() + 1001));
  }
}

TEST(BlockRecipe, WantsWholeBlocks) {
  MemorySource source;
  add_matrix(source, DType::kF32, 4, 48);
  Recipe recipe = whole_tensor(source, 0);
  const Status status = recipe.encode(*find_block_encoder("q8_0"), "w");
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kUnsupported);
  EXPECT_NE(status.error().message.find("multiples of 32"), std::string::npos);
  EXPECT_FALSE(recipe.take_blocks(source, "w"));
}

}  // namespace
}  // namespace ferry::graph::block_encoder_test
