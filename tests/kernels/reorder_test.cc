// Operators that move elements refuse places that no element has.
#include <limits>

#include "tests/runner/op_cases.h"

namespace ferry::runner::reorder_test {
namespace {

Values grid() { return f32({2, 3}, {1, 2, 3, 4, 5, 6}); }

TEST(Reorder, WhatDoesNotFitIsRefused) {
  constexpr int64_t kHuge = std::numeric_limits<int64_t>::max();
  const Values out = f32({2, 3}, {});
  check_refused({
      {"aten::reflection_pad1d.out", {grid(), ints({3, 0})}, {out}, "pad widths 3 and 0"},
      {"aten::replication_pad1d.out", {grid(), ints({0, -1})}, {out}, "pad widths 0 and -1"},
      {"aten::roll.out", {grid(), ints({1}), ints({0, 1})}, {out}, "1 shifts for 2 dimensions"},
      {"aten::flip.out", {grid(), ints({0, -2})}, {out}, "appears twice"},
      {"aten::tril.out", {f32({3}, {1, 2, 3}), integer(0)}, {f32({3}, {})}, "no matrix"},
      {"aten::pixel_shuffle.out",
       {f32({3, 1, 1}, {1, 2, 3}), integer(2)},
       {f32({3, 1, 1}, {})},
       "cannot be shuffled by 2"},
      {"aten::unfold_copy.out",
       {grid(), integer(1), integer(2), integer(0)},
       {f32({2, 2, 2}, {})},
       "at steps of 0"},
      {"aten::as_strided_copy.out",
       {grid(), ints({2, 3}), ints({kHuge, 1}), NoValue{}},
       {out},
       "elements beyond"},
      {"aten::as_strided_copy.out",
       {grid(), ints({2, 3}), ints({3, 1}), integer(1)},
       {out},
       "elements beyond"},
      {"aten::repeat_interleave.Tensor_out",
       {i64({2}, {1, -1}), NoValue{}},
       {i64({2}, {})},
       "repeats with a wrong sum"},
      {"aten::scatter.value_out",
       {grid(), integer(1), i64({2, 1}, {0, 3}), integer(7)},
       {out},
       "index 3"},
  });
}

TEST(Reorder, ADiagonalFarOutsideKeepsAllOrNothing) {
  constexpr int64_t kHuge = std::numeric_limits<int64_t>::max();
  check_cases({
      {"aten::tril.out", {grid(), integer(kHuge)}, {grid()}},
      {"aten::tril.out", {grid(), integer(-kHuge - 1)}, {f32({2, 3}, {0, 0, 0, 0, 0, 0})}},
      {"aten::roll.out",
       {grid(), ints({-kHuge - 1}), ints({1})},
       {f32({2, 3}, {3, 1, 2, 6, 4, 5})}},
  });
}

TEST(Reorder, TilesOfAnImageGoRowByRow) {
  Values image = f32({2, 4, 6}, {});
  for (int i = 0; i < 48; ++i) image.values.push_back(i);
  Values want = f32({6, 2, 2, 2}, {});
  for (int down = 0; down < 2; ++down) {
    for (int across = 0; across < 3; ++across) {
      for (int pixel = 0; pixel < 8; ++pixel) {
        const int channel = pixel / 4, y = down * 2 + pixel / 2 % 2, x = across * 2 + pixel % 2;
        want.values.push_back(channel * 24 + y * 6 + x);
      }
    }
  }
  const std::string crop = "preprocess::tile_crop.out";
  check_cases({{crop, {image, integer(2)}, {want}}});
  check_refused({
      {crop, {image, integer(3)}, {want}, "no tiles of 3 pixels"},
      {crop, {image, integer(0)}, {want}, "no tiles of 0 pixels"},
      {crop, {image, integer(-2)}, {want}, "no tiles of -2 pixels"},
      {crop, {grid(), integer(1)}, {want}, "rank"},
      {crop, {image, integer(1)}, {want}, "cannot take"},
  });
}

}  // namespace
}  // namespace ferry::runner::reorder_test
