// Pooling and resizing with numbers that no exporter writes.
#include <limits>

#include "tests/runner/op_cases.h"

namespace ferry::runner::pooling_test {
namespace {

constexpr int64_t kMost = std::numeric_limits<int32_t>::max();

Values image() { return f32({1, 1, 1, 2}, {3, 5}); }

TEST(Pooling, AKernelMayBeMuchLargerThanItsInput) {
  const Arg kernel = ints({kMost, kMost}), once = ints({1, 1}),
            padding = ints({kMost / 2, kMost / 2});
  check_cases({
      {"aten::max_pool2d_with_indices.out",
       {image(), kernel, once, padding, once, false},
       {f32({1, 1, 1, 2}, {5, 5}), i64({1, 1, 1, 2}, {1, 1})}},
      {"aten::avg_pool2d.out",
       {image(), kernel, once, padding, false, false, NoValue{}},
       {f32({1, 1, 1, 2}, {4, 4})}},
  });
}

TEST(Pooling, WhatDoesNotFitIsRefused) {
  const Values out = f32({1, 1, 1, 2}, {});
  const auto average = [&](Arg kernel, Arg padding, Arg divisor, const std::string& message) {
    return RefusedCase{"aten::avg_pool2d.out",
                       {image(), kernel, ints({1, 1}), padding, false, false, divisor},
                       {out},
                       message};
  };
  check_refused({
      average(ints({1, 0}), ints({0, 0}), NoValue{}, "padding or dilation of 0"),
      average(ints({}), ints({0, 0}), NoValue{}, "0 numbers for two dimensions"),
      average(ints({1, 3}), ints({0, 2}), NoValue{}, "padding 2 is more than half of kernel 3"),
      average(ints({2, 2}), ints({0, 0}), NoValue{}, "a window is larger than"),
      average(ints({1, 1}), ints({0, 0}), integer(0), "a divisor of 0"),
      {"aten::max_pool2d_with_indices.out",
       {image(), ints({kMost, kMost}), ints({1, 1}), ints({0, 0}), ints({kMost, kMost}), false},
       {out, i64({1, 1, 1, 2}, {})},
       "a window is larger than"},
      {"aten::_adaptive_avg_pool2d.out", {image(), ints({0, 1})}, {out}, "no height and width"},
  });
}

TEST(Resample, WhatDoesNotFitIsRefused) {
  const Values out = f32({1, 1, 1, 2}, {});
  check_refused({
      {"aten::_upsample_bilinear2d_aa.out",
       {image(), ints({1, 2}), false, 1e-30, NoValue{}},
       {out},
       "a factor of 1e-30"},
      {"aten::_upsample_bilinear2d_aa.out",
       {image(), ints({1, 2}), false, NoValue{}, std::numeric_limits<double>::quiet_NaN()},
       {out},
       "a factor of nan"},
      {"aten::upsample_nearest2d.vec_out",
       {image(), NoValue{}, NoValue{}},
       {out},
       "neither a height and width nor two factors"},
      {"aten::upsample_nearest2d.vec_out",
       {image(), ints({0, 2}), NoValue{}},
       {out},
       "an image without a size"},
  });
}

}  // namespace
}  // namespace ferry::runner::pooling_test
