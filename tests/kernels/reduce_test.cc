// Reductions, and operators along one dimension, compared with plain loops or values worked out by
// hand.
#include <limits>
#include <random>

#include "tests/runner/op_cases.h"

namespace ferry::runner::reduce_test {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

// The values are
//   1 2 3
//   4 5 6
Values matrix() { return f32({2, 3}, {1, 2, 3, 4, 5, 6}); }

Values random_values(Shape shape, uint32_t seed) {
  Values values = f32(std::move(shape), {});
  std::mt19937 random(seed);
  int64_t n = 1;
  for (int64_t size : values.shape) n *= size;
  for (int64_t i = 0; i < n; ++i) {
    values.values.push_back(static_cast<float>(random() % 2000) / 500.0F - 2.0F);
  }
  return values;
}

TEST(Reduce, SumsAndMeansOverAnyDimensions) {
  check_cases({
      {"aten::mean.out", {matrix(), ints({-1}), true, NoValue{}}, {f32({2, 1}, {2, 5})}},
      {"aten::mean.out", {matrix(), ints({0}), false, NoValue{}}, {f32({3}, {2.5, 3.5, 4.5})}},
      {"aten::sum.IntList_out", {matrix(), NoValue{}, false, NoValue{}}, {f32({}, {21})}},
      {"aten::sum.IntList_out", {matrix(), ints({0, 1}), true, NoValue{}}, {f32({1, 1}, {21})}},
      {"aten::sum.IntList_out",
       {boolean({3}, {1, 0, 1}), ints({0}), false, NoValue{}},
       {i64({}, {2})}},
      {"aten::sum.IntList_out", {i64({2}, {3, -5}), ints({}), false, NoValue{}}, {i64({}, {-2})}},
      {"aten::sum.IntList_out", {f32({2, 0}, {}), ints({1}), false, NoValue{}}, {f32({2}, {0, 0})}},
      {"aten::mean.out", {f32({1, 0}, {}), ints({1}), false, NoValue{}}, {f32({1}, {kNan})}},
      // A running sum in bf16 would stop at 256.
      {"aten::sum.IntList_out",
       {Values{DType::kBF16, {1024}, std::vector<double>(1024, 1)}, ints({0}), false, NoValue{}},
       {Values{DType::kBF16, {}, {1024}}}},
  });
  const Values cube = random_values({3, 4, 5}, 1);
  Values middle = f32({3, 1, 5}, std::vector<double>(15, 0));
  Values outer = f32({4}, std::vector<double>(4, 0));
  for (size_t a = 0; a < 3; ++a) {
    for (size_t b = 0; b < 4; ++b) {
      for (size_t c = 0; c < 5; ++c) {
        middle.values[a * 5 + c] += cube.values[(a * 4 + b) * 5 + c];
        outer.values[b] += cube.values[(a * 4 + b) * 5 + c];
      }
    }
  }
  check_cases({
      {"aten::sum.IntList_out", {cube, ints({1}), true, NoValue{}}, {middle}, 2e-6},
      {"aten::sum.IntList_out", {cube, ints({0, -1}), false, NoValue{}}, {outer}, 2e-6},
  });
}

TEST(Reduce, ExtremesAndTheirPlaces) {
  const Values rows = f32({2, 4}, {1, 9, 9, -2, 5, kNan, 7, kNan});
  check_cases({
      {"aten::amax.out", {rows, ints({1}), false}, {f32({2}, {9, kNan})}},
      {"aten::amin.out", {rows, ints({1}), true}, {f32({2, 1}, {-2, kNan})}},
      {"aten::argmax.out", {rows, integer(1), false}, {i64({2}, {1, 1})}},
      {"aten::argmax.out", {matrix(), NoValue{}, false}, {i64({}, {5})}},
      {"aten::argmin.out", {matrix(), integer(0), true}, {i64({1, 3}, {0, 0, 0})}},
      {"aten::max.dim_max",
       {matrix(), integer(0), false},
       {f32({3}, {4, 5, 6}), i64({3}, {1, 1, 1})}},
      {"aten::min.dim_min",
       {i64({3}, {4, -7, 2}), integer(0), true},
       {i64({1}, {-7}), i64({1}, {1})}},
      {"aten::amax.out", {f32({2}, {-kInf, -kInf}), ints({0}), false}, {f32({}, {-kInf})}},
  });
  check_refused({
      {"aten::amax.out", {f32({2, 0}, {}), ints({1}), false}, {f32({2}, {})}, "no values"},
      {"aten::argmax.out", {matrix(), integer(2), false}, {i64({2}, {})}, "outside of rank"},
      {"aten::argmax.out", {matrix(), integer(1), false}, {f32({2}, {})}, "must be i64"},
  });
}

TEST(Reduce, Any) {
  check_cases({
      {"aten::any.out",
       {boolean({2, 2}, {0, 0, 0, 1}), integer(-1), true},
       {boolean({2, 1}, {0, 1})}},
      {"aten::any.dims_out", {f32({2}, {0, kNan}), NoValue{}, false}, {boolean({}, {1})}},
      {"aten::any.all_out", {f32({2}, {0, 0})}, {boolean({}, {0})}},
  });
}

TEST(Reduce, WhatDoesNotFitIsRefused) {
  check_refused({
      {"aten::mean.out",
       {i64({2}, {1, 2}), ints({0}), false, NoValue{}},
       {i64({}, {})},
       "cannot be stored"},
      {"aten::sum.IntList_out",
       {matrix(), ints({0, 0}), false, NoValue{}},
       {f32({3}, {})},
       "appears twice"},
      {"aten::sum.IntList_out",
       {matrix(), ints({5}), false, NoValue{}},
       {f32({3}, {})},
       "outside of rank"},
      {"aten::sum.IntList_out",
       {matrix(), ints({1}), false, NoValue{}},
       {f32({3}, {})},
       "result's shape"},
  });
}

// Computes the softmax of every line of a cube along `dim`, in double.
Values naive_softmax(const Values& in, size_t dim, bool logarithm) {
  Values out = in;
  size_t inner = 1;
  for (size_t d = dim + 1; d < in.shape.size(); ++d) inner *= static_cast<size_t>(in.shape[d]);
  const size_t n = static_cast<size_t>(in.shape[dim]);
  for (size_t line = 0; line < in.values.size() / n; ++line) {
    const size_t start = line / inner * inner * n + line % inner;
    double sum = 0;
    for (size_t i = 0; i < n; ++i) sum += std::exp(in.values[start + i * inner]);
    for (size_t i = 0; i < n; ++i) {
      const double x = in.values[start + i * inner];
      out.values[start + i * inner] = logarithm ? x - std::log(sum) : std::exp(x) / sum;
    }
  }
  return out;
}

TEST(Rows, SoftmaxAlongAnyDimension) {
  const Values cube = random_values({3, 4, 5}, 2);
  for (const int64_t dim : {0, 1, 2}) {
    for (const bool logarithm : {false, true}) {
      const std::string name = logarithm ? "aten::_log_softmax.out" : "aten::_softmax.out";
      const Values want = naive_softmax(cube, static_cast<size_t>(dim), logarithm);
      check_cases({{name, {cube, dim - 3, false}, {want}, 2e-6}});
      Values wide = cube;
      wide.dtype = DType::kF64;
      Values wide_want = want;
      wide_want.dtype = DType::kF64;
      check_cases({{name, {wide, dim, false}, {wide_want}, 1e-14}});
    }
  }
  check_cases({
      {"aten::_softmax.out", {f32({3}, {-kInf, 0, 0}), integer(0), false}, {f32({3}, {0, .5, .5})}},
      {"aten::_softmax.out", {f32({}, {4}), integer(0), false}, {f32({}, {1})}},
      {"aten::_softmax.out",
       {Values{DType::kF16, {2}, {1, 1}}, integer(0), true},
       {f32({2}, {0.5, 0.5})}},
  });
  check_refused({{"aten::_softmax.out",
                  {i64({2}, {1, 2}), integer(0), false},
                  {f32({2}, {})},
                  "softmax of"}});
}

TEST(Rows, CumulativeSums) {
  check_cases({
      {"aten::cumsum.out", {matrix(), integer(1), NoValue{}}, {f32({2, 3}, {1, 3, 6, 4, 9, 15})}},
      {"aten::cumsum.out", {matrix(), integer(0), NoValue{}}, {f32({2, 3}, {1, 2, 3, 5, 7, 9})}},
      {"aten::cumsum.out", {boolean({3}, {1, 0, 1}), integer(0), NoValue{}}, {i64({3}, {1, 1, 2})}},
  });
}

TEST(Rows, LayerNorm) {
  // The rows 1 2 3 and 4 5 6 have variance 2/3.
  const double rstd = 1 / std::sqrt(2.0 / 3 + 1e-5);
  const Values normal = f32({2, 3}, {-rstd, 0, rstd, -rstd, 0, rstd});
  const Values scaled = f32({2, 3}, {-rstd + 10, 0, 3 * rstd, -rstd + 10, 0, 3 * rstd});
  const Values mean = f32({2, 1}, {2, 5});
  const Values rstds = f32({2, 1}, {rstd, rstd});
  check_cases({
      {"aten::native_layer_norm.out",
       {matrix(), ints({3}), NoValue{}, NoValue{}, 1e-5},
       {normal, mean, rstds}},
      {"aten::native_layer_norm.out",
       {matrix(), ints({3}), f32({3}, {1, 2, 3}), f32({3}, {10, 0, 0}), 1e-5},
       {scaled, mean, rstds}},
  });
  check_refused({{"aten::native_layer_norm.out",
                  {matrix(), ints({2}), NoValue{}, NoValue{}, 1e-5},
                  {normal, mean, rstds},
                  "does not end in"},
                 {"aten::native_layer_norm.out",
                  {matrix(), ints({3}), f32({2}, {1, 2}), NoValue{}, 1e-5},
                  {normal, mean, rstds},
                  "must have shape [3]"}});
}

TEST(Rows, TopK) {
  const Values row = f32({1, 5}, {3, 9, -1, 9, 5});
  check_cases({
      {"aten::topk.values",
       {row, integer(3), integer(-1), true, true},
       {f32({1, 3}, {9, 9, 5}), i64({1, 3}, {1, 3, 4})}},
      {"aten::topk.values",
       {row, integer(2), integer(-1), false, true},
       {f32({1, 2}, {-1, 3}), i64({1, 2}, {2, 0})}},
      {"aten::topk.values",
       {f32({2, 3, 2}, {1, 9, 5, 8, 3, 7, 2, 4, 6, 0, 7, 5}), integer(2), integer(1), true, true},
       {f32({2, 2, 2}, {5, 9, 3, 8, 7, 5, 6, 4}), i64({2, 2, 2}, {1, 0, 2, 1, 2, 2, 1, 0})}},
      {"aten::topk.values",
       {i64({2, 1}, {7, 8}), integer(1), integer(0), false, true},
       {i64({1, 1}, {7}), i64({1, 1}, {0})}},
      {"aten::topk.values",
       {f32({}, {7}), integer(1), integer(-1), true, true},
       {f32({}, {7}), i64({}, {0})}},
  });
  check_refused({{"aten::topk.values",
                  {row, integer(6), integer(-1), true, true},
                  {f32({1, 6}, {}), i64({1, 6}, {})},
                  "k is 6, out of range"}});
}

}  // namespace
}  // namespace ferry::runner::reduce_test
