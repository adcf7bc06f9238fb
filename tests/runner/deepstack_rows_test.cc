#include "runner/deepstack_rows.h"

#include <gtest/gtest.h>

namespace ferry::runner::deepstack_rows_test {
namespace {

std::vector<float> of_call(DeepstackRows& rows, int64_t position, int64_t count) {
  const std::span<const float> values = rows.of_call(position, count);
  return {values.begin(), values.end()};
}

// Two rows of three parts: the embedding, and what two layers get.
TEST(DeepstackRows, ACallGetsThePartsOfItsRowsAndZeros) {
  const std::vector<float> values = {1, 2, 3, 4, 5, 6, 11, 12, 13, 14, 15, 16};
  const EmbeddingRows image = {3, values};
  DeepstackRows rows(2, 4, 2);
  rows.set({&image, 1});
  EXPECT_EQ(of_call(rows, 0, 3), std::vector<float>(12));
  EXPECT_EQ(of_call(rows, 2, 4),
            (std::vector<float>{0, 0, 3, 4, 13, 14, 0, 0, 0, 0, 5, 6, 15, 16, 0, 0}));
  EXPECT_EQ(of_call(rows, 4, 1), (std::vector<float>{13, 14, 15, 16}));
  EXPECT_EQ(of_call(rows, 5, 2), std::vector<float>(8));
  rows.set({});
  EXPECT_EQ(of_call(rows, 3, 2), std::vector<float>(8));
}

}  // namespace
}  // namespace ferry::runner::deepstack_rows_test
