// The rotation matrix R3 follows its definition, in whatever tiles it is computed.
#include "converters/blocks/attention.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

namespace ferry::converters::attention_test {
namespace {

std::vector<float> in_tiles(const graph::Literal& literal, size_t tile) {
  std::vector<float> values(literal.bytes / sizeof(float), NAN);
  const auto bytes = std::as_writable_bytes(std::span(values));
  for (size_t at = 0; at < bytes.size(); at += tile) {
    literal.fill(at, bytes.subspan(at, std::min(tile, bytes.size() - at)));
  }
  return values;
}

graph::Literal matrix_of(int64_t size) {
  GraphBuilder b(1);
  b.output(hadamard_rotation(b, b.input("x", DType::kF32, {2, size})), "y");
  return b.finish()->literals.at(0);
}

TEST(Hadamard, IsSymmetricAndItsOwnInverse) {
  for (const size_t size : {1U, 2U, 4U, 64U, 128U}) {
    const std::vector<float> m = in_tiles(matrix_of(static_cast<int64_t>(size)), 1 << 20);
    ASSERT_EQ(m.size(), size * size);
    for (size_t i = 0; i < size; ++i) {
      for (size_t j = 0; j < size; ++j) {
        EXPECT_EQ(m[i * size + j], m[j * size + i]);
        double product = 0;
        for (size_t k = 0; k < size; ++k) {
          product += static_cast<double>(m[i * size + k]) * static_cast<double>(m[j * size + k]);
        }
        EXPECT_NEAR(product, i == j ? 1 : 0, 1e-6);
      }
    }
  }
}

TEST(Hadamard, IsSylvestersMatrix) {
  EXPECT_EQ(in_tiles(matrix_of(4), 64),
            (std::vector<float>{0.5, 0.5, 0.5, 0.5, 0.5, -0.5, 0.5, -0.5,  //
                                0.5, 0.5, -0.5, -0.5, 0.5, -0.5, -0.5, 0.5}));
}

TEST(Hadamard, DoesNotDependOnTiles) {
  const graph::Literal matrix = matrix_of(16);
  EXPECT_EQ(matrix.bytes, 1024U);
  for (const size_t tile : {3U, 4U, 10U, 64U, 100U}) {
    EXPECT_EQ(in_tiles(matrix, tile), in_tiles(matrix, 1024)) << tile;
  }
}

}  // namespace
}  // namespace ferry::converters::attention_test
