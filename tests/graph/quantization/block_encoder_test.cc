// Blocks of GGUF, compared with those of ggml: digests of the results of ggml_quantize_chunk() of
// ggml 0.25.3 (in llama-cpp-python 0.3.36) for the same values.
#include "graph/quantization/block_encoder.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <memory>
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

struct Digests {
  const char* name;
  const char* plain;
  const char* by_importance;  // rows of kColumns, with importance_of_columns()
};
constexpr size_t kColumns = 512;

std::vector<float> importance_of_columns() {
  std::vector<float> importance;
  for (size_t c = 0; c < kColumns; ++c) {
    const auto root = static_cast<float>(c * 37 % 101);
    importance.push_back(root * root / 16);
  }
  return importance;
}

TEST(BlockEncoder, MakesTheBlocksOfGgml) {
  const Digests kDigests[] = {
      {"q2_k", "80fc50d751f5572729127940e223f907d64a7c08ea4fee1a41f1fd992b4ba1a2",
       "40dc8a63dc054c063f30ebc1bf143414f8635684534630ae31339e2da1a5ca93"},
      {"q3_k", "bbe4ef1692914943c4c3d8746699a9d8763c4068ad16a9164e8e9b1ddceb8194",
       "97402d96cf3d31ab5d78ab6fd85cb4380990b30386c97fc8b31d64d5d865ebc3"},
      {"q4_0", "c3cec7dd1b6128f20cc031895850aeb824c9b4ae3e11adbfa4e3ee89fbeae217",
       "1707f1d8382efcf04902e29058b729821bc9d507e8a2673281a4aeb1f9868c9c"},
      {"q4_1", "35d9c2e3e69cd793db87109de323c573917f19adb8d86f4ddf38c46617a88a13",
       "b89bce696409ee0caff8676e0dc0743e9d9eb07771072e123058b83bdb60136f"},
      {"q4_k", "be1c0eab19749da91dbc684042637c62783bf851262d59d6318c8fb75543bd6c",
       "edf3a2fd134e7154331e26a6dca43205a252c929441f359af53c3bbb687696b7"},
      {"q5_0", "fef50b04d1ff7eb481779eca0a41554b56a2e1af497f2d37f2e4e035c794729b",
       "a7b0145409df8f4168c76cbc6e216dc25227e56d250bcd2aae6b9f8ddda0e00b"},
      {"q5_1", "9d964bcacb16164de557e41565799f0e701f8bd8e42ada34c9bbef7ce3430b53",
       "2d8e0d5b36414b76abad61bab774ba3ec13cd0f911798eac983a1ae7ec87ddeb"},
      {"q5_k", "0beff33ed0b6109b7bb3d228424f546348f720f7ff9a084e047eba2ee9c14c1c",
       "45933a3b9d703ad226d24b72e475e46d0fb0cb0a685566ef4cf00b595e1d1b99"},
      {"q6_k", "d35970adac639d1480f8b777c2ecddcb1e1b0e09e38ca5decd860b8d2f4e2a0a",
       "fdce1188a7aa8405e0ee8ffb1e4a3b4b90c33692f0c465c3b3960be7d82a288e"},
      {"q8_0", "0ce74b390d2d41d08658a0b5bbe906ba4e085220ae0db3fd1c8f4f0b09c522a0",
       "0ce74b390d2d41d08658a0b5bbe906ba4e085220ae0db3fd1c8f4f0b09c522a0"},
      {"iq4_nl", "9980a4279a826c4618b53a17ac2176a19dc4283b76bbb41fa88eca1b9bd6041d",
       "3a097d65a15742cc8a36389b7bb42a58b63755c8da6a7495f823fe3be1dbeffb"},
      {"iq4_xs", "17b3532c46b30252f87efdb94509292475b0d620c4aed159e53244a82c247b38",
       "2ebc0073c8d7508b11643bb275012bf3f25e86ee2e48077ab1824a1900f5c650"}};
  const std::vector<float> all = values(), importance = importance_of_columns();
  EXPECT_EQ(to_hex(sha256(std::as_bytes(std::span(all)))),
            "d455b886ece2611ab08ad42e3bdd62fd38ea02ae26766bcd6501b10c7ea1e00b");
  for (const Digests& digests : kDigests) {
    SCOPED_TRACE(digests.name);
    const BlockEncoder* encoder = find_block_encoder(digests.name);
    ASSERT_NE(encoder, nullptr);
    const size_t blocks = all.size() / encoder->elements;
    std::vector<std::byte> out(blocks * encoder->bytes);
    BlockRows rows = {.values = all.data(), .rows = all.size() / kColumns, .columns = kColumns};
    encoder->encode(rows, out.data());
    EXPECT_EQ(to_hex(sha256(out)), digests.plain);
    EXPECT_EQ(count_unencodable(*encoder, all.data(), blocks, out.data()), 0);
    rows.importance = importance.data();
    encoder->encode(rows, out.data());
    EXPECT_EQ(to_hex(sha256(out)), digests.by_importance);
    EXPECT_EQ(encoder->takes_importance, digests.plain != std::string(digests.by_importance));
  }
  EXPECT_EQ(find_block_encoder("q8_1"), nullptr);
}

// A scale beyond f16 would make all values of its block infinite.
TEST(BlockEncoder, CountsWhatNoBlockCanStandFor) {
  const float infinity = std::numeric_limits<float>::infinity();
  for (const char* name : {"q2_k", "q3_k", "q4_0", "q4_1", "q4_k", "q5_0", "q5_1", "q5_k", "q6_k",
                           "q8_0", "iq4_nl", "iq4_xs"}) {
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

// Each matrix of a stack has numbers of its own, wherever a tile begins.
TEST(BlockRecipe, MatricesOfAStackHaveTheirOwnImportance) {
  MemorySource source;
  add_matrix(source, DType::kBF16, 24, 256);
  Recipe stack = whole_tensor(source, 0);
  stack.output().shape = {3, 8, 256};
  auto importance = std::make_shared<std::vector<float>>();
  for (int64_t i = 0; i < int64_t{3} * 256; ++i) {
    importance->push_back(static_cast<float>(i * i % 97));
  }
  Recipe plain = stack, wrong = stack;
  const BlockEncoder& encoder = *find_block_encoder("q4_k");
  ASSERT_TRUE(plain.encode(encoder, "w"));
  ASSERT_TRUE(stack.encode(encoder, "w", importance));
  EXPECT_NE(stack, plain);
  EXPECT_EQ(step_name(stack.steps.back()), "encode q4_k by importance");
  const std::vector<std::byte> all = rows_of(stack, source, 0, 24);
  for (int64_t matrix = 0; matrix < 3; ++matrix) {
    Recipe one = whole_tensor(source, 0);
    one.pieces = {run_piece(0, matrix * 8 * 256, int64_t{8} * 256)};
    one.output().shape = {8, 256};
    const auto from = importance->begin() + matrix * 256;
    ASSERT_TRUE(one.encode(encoder, "w", std::make_shared<std::vector<float>>(from, from + 256)));
    const std::vector<std::byte> part = rows_of(one, source, 0, 8);
    EXPECT_TRUE(std::equal(part.begin(), part.end(), all.begin() + matrix * std::ssize(part)));
  }
  const std::vector<std::byte> across = rows_of(stack, source, 6, 5);
  const auto bytes = static_cast<std::ptrdiff_t>(row_bytes(stack, 0));
  EXPECT_TRUE(std::equal(across.begin(), across.end(), all.begin() + 6 * bytes));
  const Status status = wrong.encode(encoder, "w", std::make_shared<std::vector<float>>(256));
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kBadInput);
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
