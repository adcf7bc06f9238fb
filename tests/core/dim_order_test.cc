// Stored orders of dimensions: sizes, strides and copies follow from the definition of an index.
#include "core/dim_order.h"

#include <gtest/gtest.h>

#include <cstring>
#include <numeric>

namespace ferry::dim_order_test {
namespace {

using Order = std::vector<uint8_t>;

TEST(DimOrder, Permutations) {
  EXPECT_TRUE(is_permutation(Order{}));
  EXPECT_TRUE(is_permutation(Order{0, 2, 3, 1}));
  EXPECT_FALSE(is_permutation(Order{0, 0}));
  EXPECT_FALSE(is_permutation(Order{0, 2}));
  EXPECT_FALSE(is_permutation(Order(100, 0)));
  EXPECT_TRUE(is_row_major(Order{}));
  EXPECT_TRUE(is_row_major(Order{0, 1, 2}));
  EXPECT_FALSE(is_row_major(Order{0, 2, 1}));
}

TEST(DimOrder, AnImageWithItsChannelsLast) {
  const Order order = {0, 2, 3, 1};
  EXPECT_EQ(stored_sizes(Shape{2, 3, 4, 5}, order), (Shape{2, 4, 5, 3}));
  EXPECT_EQ(stored_strides(Shape{2, 3, 4, 5}, order), (Shape{60, 1, 15, 3}));
}

TEST(DimOrder, EveryElementIsAtItsIndex) {
  const Shape sizes = {2, 3, 1, 4};
  for (Order order = {0, 1, 2, 3}; std::ranges::next_permutation(order).found;) {
    const Shape strides = stored_strides(sizes, order);
    std::vector<uint32_t> stored(24), out(24);
    for (int64_t i = 0; i < 24; ++i) {
      const int64_t index[] = {i / 12, i / 4 % 3, 0, i % 4};
      const int64_t at = std::inner_product(strides.begin(), strides.end(), index, int64_t{0});
      stored[static_cast<size_t>(at)] = static_cast<uint32_t>(i);
    }
    copy_row_major(std::as_bytes(std::span(stored)), sizes, order, 4,
                   reinterpret_cast<std::byte*>(out.data()));
    for (uint32_t i = 0; i < 24; ++i) EXPECT_EQ(out[i], i);
  }
}

TEST(DimOrder, EmptyAndSingleElements) {
  copy_row_major({}, Shape{2, 0, 3}, Order{2, 0, 1}, 4, nullptr);
  const std::byte one{7};
  std::byte out{0};
  copy_row_major({&one, 1}, Shape{}, Order{}, 1, &out);
  EXPECT_EQ(out, one);
}

}  // namespace
}  // namespace ferry::dim_order_test
