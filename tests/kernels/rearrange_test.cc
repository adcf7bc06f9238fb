// Operators that copy, view or move elements, and operators that make values.
#include <limits>
#include <numeric>
#include <random>

#include "tests/runner/op_cases.h"

namespace ferry::runner::rearrange_test {
namespace {

constexpr int64_t kMax = std::numeric_limits<int64_t>::max();

Values counting(Shape shape, DType dtype = DType::kF32) {
  Values values{dtype, std::move(shape), {}};
  int64_t n = 1;
  for (int64_t size : values.shape) n *= size;
  values.values.resize(static_cast<size_t>(n));
  std::iota(values.values.begin(), values.values.end(), 0);
  return values;
}

// The values are
//   0 1 2
//   3 4 5
Values matrix() { return counting({2, 3}); }

TEST(Shapes, ViewsAndCopiesKeepTheOrder) {
  check_cases({
      {"aten::view_copy.out", {matrix(), ints({3, -1})}, {counting({3, 2})}},
      {"aten::view_copy.out", {matrix(), ints({6})}, {counting({6})}},
      {"aten::clone.out", {matrix(), integer(0)}, {matrix()}},
      {"aten::alias_copy.out", {matrix()}, {matrix()}},
      {"llama::fallback.out", {matrix()}, {matrix()}},
      {"llama::fallback.out", {counting({3}, DType::kU16)}, {counting({3}, DType::kU16)}},
      {"dim_order_ops::_clone_dim_order.out", {matrix(), false, NoValue{}}, {matrix()}},
      {"dim_order_ops::_clone_dim_order.out", {matrix(), false, ints({0, 1})}, {matrix()}},
      {"dim_order_ops::_clone_dim_order.out", {matrix(), false, ints({1, 0})}, {matrix()}},
      {"dim_order_ops::_clone_dim_order.out",
       {counting({2, 1, 3}, DType::kU8), false, ints({0, 1, 2})},
       {counting({2, 1, 3}, DType::kU8)}},
      {"dim_order_ops::_to_dim_order_copy.out", {matrix(), false, NoValue{}}, {matrix()}},
      {"dim_order_ops::_to_dim_order_copy.out",
       {i64({2, 3}, {0, 1, 2, 3, 4, 5}), false, ints({0, 1})},
       {matrix()}},
      {"aten::unsqueeze_copy.out", {matrix(), integer(-1)}, {counting({2, 3, 1})}},
      {"aten::unsqueeze_copy.out", {matrix(), integer(0)}, {counting({1, 2, 3})}},
      {"aten::squeeze_copy.dims_out", {counting({2, 1, 3, 1}), ints({1, -1, 0})}, {matrix()}},
      {"aten::squeeze_copy.dim_out", {counting({2, 1, 3}), integer(1)}, {matrix()}},
      {"aten::squeeze_copy.dim_out", {matrix(), integer(0)}, {matrix()}},
  });
  check_refused({
      {"aten::view_copy.out", {matrix(), ints({4, -1})}, {matrix()}, "cannot be viewed"},
      {"aten::view_copy.out", {matrix(), ints({-1, -1})}, {matrix()}, "more than one"},
      {"aten::view_copy.out", {matrix(), ints({-2, -3})}, {matrix()}, "cannot be viewed"},
      {"aten::view_copy.out", {matrix(), ints({kMax, kMax})}, {matrix()}, "cannot be viewed"},
      {"aten::unsqueeze_copy.out", {matrix(), integer(3)}, {matrix()}, "outside of rank"},
      {"aten::clone.out", {matrix(), integer(0)}, {i64({2, 3}, {})}, "differ in dtype"},
      {"llama::fallback.out", {matrix()}, {i64({2, 3}, {})}, "differ in dtype"},
      {"llama::fallback.out", {matrix()}, {f32({3, 2}, {})}, "cannot take"},
      {"dim_order_ops::_clone_dim_order.out",
       {matrix(), false, ints({1, 1})},
       {matrix()},
       "no permutation"},
      {"dim_order_ops::_clone_dim_order.out",
       {matrix(), false, ints({0})},
       {matrix()},
       "no permutation"},
      {"dim_order_ops::_clone_dim_order.out",
       {matrix(), false, NoValue{}},
       {i64({2, 3}, {})},
       "differ in dtype"},
      {"dim_order_ops::_to_dim_order_copy.out",
       {matrix(), false, ints({0, 2})},
       {i64({2, 3}, {})},
       "no permutation"},
  });
}

TEST(Shapes, PermutationsAndTransposes) {
  const Values transposed = f32({3, 2}, {0, 3, 1, 4, 2, 5});
  check_cases({
      {"aten::permute_copy.out", {matrix(), ints({1, 0})}, {transposed}},
      {"aten::permute_copy.out", {matrix(), ints({-1, -2})}, {transposed}},
      {"aten::t_copy.out", {matrix()}, {transposed}},
      {"aten::transpose_copy.int_out", {matrix(), integer(0), integer(-1)}, {transposed}},
      {"aten::permute_copy.out",
       {counting({2, 1, 2, 2}), ints({3, 1, 0, 2})},
       {f32({2, 1, 2, 2}, {0, 2, 4, 6, 1, 3, 5, 7})}},
  });
  check_refused({
      {"aten::permute_copy.out", {matrix(), ints({0, 0})}, {matrix()}, "not a permutation"},
      {"aten::permute_copy.out", {matrix(), ints({0})}, {matrix()}, "not a permutation"},
      {"aten::permute_copy.out", {matrix(), ints({0, 2})}, {matrix()}, "outside of rank"},
      {"aten::t_copy.out", {counting({1, 2, 3})}, {matrix()}, "not a matrix"},
  });
}

TEST(Shapes, EveryElementSizeAndOrderMatchesIndexArithmetic) {
  std::mt19937 random(3);
  for (const DType dtype : {DType::kU8, DType::kI16, DType::kF32, DType::kI64}) {
    for (int round = 0; round < 20; ++round) {
      Shape shape;
      std::vector<int64_t> order;
      for (int64_t d = 0; d < 4; ++d) {
        // Some dimensions are longer than the tiles of a transposition.
        shape.push_back(1 + static_cast<int64_t>(random() % (d % 2 == 0 ? 5 : 40)));
        order.push_back(d);
      }
      std::shuffle(order.begin(), order.end(), random);
      Values in = counting(shape, dtype);
      for (double& v : in.values) v = std::fmod(v, 100);
      Values want{dtype, {}, {}};
      for (int64_t d : order) want.shape.push_back(shape[static_cast<size_t>(d)]);
      for (size_t i = 0; i < in.values.size(); ++i) {
        size_t rest = i;
        std::vector<size_t> at(4);
        for (size_t d = 4; d-- > 0;) {
          at[static_cast<size_t>(order[d])] = rest % static_cast<size_t>(want.shape[d]);
          rest /= static_cast<size_t>(want.shape[d]);
        }
        size_t from = 0;
        for (size_t d = 0; d < 4; ++d) from = from * static_cast<size_t>(shape[d]) + at[d];
        want.values.push_back(in.values[from]);
      }
      check_cases({{"aten::permute_copy.out", {in, ints(order)}, {want}}});
    }
  }
}

TEST(Shapes, ExpandAndRepeat) {
  check_cases({
      {"aten::expand_copy.out",
       {f32({2, 1}, {1, 2}), ints({2, 3}), false},
       {f32({2, 3}, {1, 1, 1, 2, 2, 2})}},
      {"aten::expand_copy.out",
       {f32({2, 1}, {1, 2}), ints({2, -1, 2}), false},
       {f32({2, 2, 2}, {1, 1, 2, 2, 1, 1, 2, 2})}},
      {"aten::expand_copy.out", {f32({}, {7}), ints({2}), false}, {f32({2}, {7, 7})}},
      {"aten::repeat.out",
       {f32({2}, {1, 2}), ints({2, 2})},
       {f32({2, 4}, {1, 2, 1, 2, 1, 2, 1, 2})}},
  });
  check_refused({
      {"aten::expand_copy.out", {matrix(), ints({3}), false}, {matrix()}, "cannot be expanded"},
      {"aten::expand_copy.out", {matrix(), ints({2, 4}), false}, {matrix()}, "broadcast"},
      {"aten::expand_copy.out", {f32({1}, {1}), ints({kMax}), false}, {f32({1}, {})}, "shape"},
      {"aten::expand_copy.out", {matrix(), ints({-1, 2, 3}), false}, {matrix()}, "size -1"},
      {"aten::repeat.out", {matrix(), ints({2, kMax})}, {matrix()}, "out of range"},
      {"aten::repeat.out", {matrix(), ints({2})}, {matrix()}, "fewer repeats"},
  });
}

TEST(Shapes, SlicesFollowTorch) {
  const Values six = counting({6});
  struct Row {
    Arg start, end;
    int64_t step;
    std::vector<double> expected;
  };
  const std::vector<Row> rows = {
      {integer(1), integer(4), 1, {1, 2, 3}}, {integer(-2), NoValue{}, 1, {4, 5}},
      {NoValue{}, NoValue{}, 2, {0, 2, 4}},   {integer(1), integer(kMax), 4, {1, 5}},
      {integer(4), integer(2), 1, {}},        {integer(-100), integer(100), 5, {0, 5}},
      {integer(0), integer(6), kMax, {0}},    {integer(7), integer(9), 1, {}},
      {integer(0), integer(-kMax), 1, {}},    {integer(2), integer(-1), 2, {2, 4}},
  };
  for (const Row& row : rows) {
    const Values want = f32({static_cast<int64_t>(row.expected.size())}, row.expected);
    check_cases(
        {{"aten::slice_copy.Tensor_out", {six, integer(0), row.start, row.end, row.step}, {want}}});
  }
  check_cases({
      {"aten::slice_copy.Tensor_out",
       {matrix(), integer(-1), integer(1), integer(3), integer(1)},
       {f32({2, 2}, {1, 2, 4, 5})}},
      {"aten::narrow_copy.out",
       {matrix(), integer(1), integer(-1), integer(1)},
       {f32({2, 1}, {2, 5})}},
      {"aten::select_copy.int_out", {matrix(), integer(1), integer(-1)}, {f32({2}, {2, 5})}},
      {"aten::select_copy.int_out", {matrix(), integer(0), integer(1)}, {f32({3}, {3, 4, 5})}},
  });
  check_refused({
      {"aten::slice_copy.Tensor_out",
       {six, integer(0), integer(0), integer(1), integer(0)},
       {six},
       "step 0"},
      {"aten::slice_copy.Tensor_out",
       {six, integer(1), integer(0), integer(1), integer(1)},
       {six},
       "outside of rank"},
      {"aten::slice_copy.Tensor_out",
       {f32({}, {1}), integer(0), integer(0), integer(1), integer(1)},
       {six},
       "no dimensions"},
      {"aten::select_copy.int_out",
       {matrix(), integer(0), integer(2)},
       {f32({3}, {})},
       "index 2 is outside"},
      {"aten::select_copy.int_out",
       {matrix(), integer(0), integer(-3)},
       {f32({3}, {})},
       "index -3 is outside"},
      {"aten::narrow_copy.out",
       {matrix(), integer(1), integer(1), integer(kMax)},
       {matrix()},
       "beyond the end"},
  });
}

TEST(Shapes, ScattersReplaceOnePart) {
  check_cases({
      {"aten::slice_scatter.out",
       {matrix(), f32({2, 2}, {10, 11, 12, 13}), integer(1), integer(0), integer(3), integer(2)},
       {f32({2, 3}, {10, 1, 11, 12, 4, 13})}},
      {"aten::slice_scatter.out",
       {matrix(), matrix(), integer(0), integer(0), integer(kMax), integer(1)},
       {matrix()}},
      {"aten::select_scatter.out",
       {matrix(), f32({2}, {8, 9}), integer(1), integer(1)},
       {f32({2, 3}, {0, 8, 2, 3, 9, 5})}},
      {"aten::select_scatter.out",
       {matrix(), i64({2}, {8, 9}), integer(1), integer(1)},
       {f32({2, 3}, {0, 8, 2, 3, 9, 5})}},
      {"aten::slice_scatter.out",
       {boolean({3}, {1, 1, 0}), i64({2}, {0, 7}), integer(0), integer(1), integer(3), integer(1)},
       {boolean({3}, {1, 0, 1})}},
  });
  check_refused({{"aten::slice_scatter.out",
                  {matrix(), matrix(), integer(1), integer(0), integer(2), integer(1)},
                  {matrix()},
                  "must have shape [2, 2]"}});
}

TEST(Shapes, JoinsAndSplits) {
  const Values column = f32({2, 1}, {8, 9});
  check_cases({
      {"aten::cat.out",
       {TensorArgs{matrix(), column}, integer(-1)},
       {f32({2, 4}, {0, 1, 2, 8, 3, 4, 5, 9})}},
      {"aten::cat.out",
       {TensorArgs{f32({0}, {}), matrix(), matrix()}, integer(0)},
       {f32({4, 3}, {0, 1, 2, 3, 4, 5, 0, 1, 2, 3, 4, 5})}},
      {"aten::cat.out",
       {TensorArgs{boolean({2, 1}, {1, 0}), i64({2, 1}, {7, -8}), f32({2, 1}, {0.5, 2})},
        integer(1)},
       {f32({2, 3}, {1, 7, 0.5, 0, -8, 2})}},
      {"aten::stack.out",
       {TensorArgs{i64({2}, {1, 2}), f32({2}, {0.25, 4})}, integer(0)},
       {Values{DType::kF64, {2, 2}, {1, 2, 0.25, 4}}}},
      {"aten::stack.out",
       {TensorArgs{f32({2}, {1, 2}), f32({2}, {3, 4})}, integer(1)},
       {f32({2, 2}, {1, 3, 2, 4})}},
      {"aten::split_with_sizes_copy.out",
       {matrix(), ints({1, 2}), integer(-1)},
       {f32({2, 1}, {0, 3}), f32({2, 2}, {1, 2, 4, 5})}},
      {"aten::split_copy.Tensor_out",
       {counting({5}), integer(2), integer(0)},
       {f32({2}, {0, 1}), f32({2}, {2, 3}), f32({1}, {4})}},
      {"aten::unbind_copy.int_out",
       {matrix(), integer(0)},
       {f32({3}, {0, 1, 2}), f32({3}, {3, 4, 5})}},
  });
  check_refused({
      {"aten::cat.out",
       {TensorArgs{matrix(), f32({3, 1}, {1, 2, 3})}, integer(1)},
       {matrix()},
       "must have shape"},
      {"aten::cat.out",
       {TensorArgs{matrix(), counting({2})}, integer(0)},
       {matrix()},
       "must have rank 2"},
      {"aten::cat.out",
       {TensorArgs{matrix(), i64({2, 1}, {1, 2})}, integer(1)},
       {i64({2, 4}, {})},
       "differ in dtype"},
      {"aten::split_with_sizes_copy.out",
       {matrix(), ints({1, 3}), integer(1)},
       {column, column},
       "do not add up"},
      {"aten::split_with_sizes_copy.out",
       {matrix(), ints({4, -1}), integer(1)},
       {column, column},
       "do not add up"},
      {"aten::split_with_sizes_copy.out",
       {matrix(), ints({3}), integer(1)},
       {column, column},
       "1 parts, but 2 outputs"},
      {"aten::unbind_copy.int_out", {matrix(), integer(0)}, {f32({3}, {})}, "do not add up"},
  });
}

TEST(Shapes, PaddingAddsAndCrops) {
  check_cases({
      {"aten::constant_pad_nd.out",
       {matrix(), ints({1, -1}), 9.0},
       {f32({2, 3}, {9, 0, 1, 9, 3, 4})}},
      {"aten::constant_pad_nd.out",
       {matrix(), ints({0, 1, 1, 0}), 0.5},
       {f32({3, 4}, {.5, .5, .5, .5, 0, 1, 2, .5, 3, 4, 5, .5})}},
  });
  check_refused({
      {"aten::constant_pad_nd.out", {matrix(), ints({1}), 0.0}, {matrix()}, "pad widths"},
      {"aten::constant_pad_nd.out", {matrix(), ints({-2, -2}), 0.0}, {matrix()}, "crops more"},
      {"aten::constant_pad_nd.out",
       {matrix(), ints({kMax, kMax}), 0.0},
       {matrix()},
       "out of range"},
      {"aten::constant_pad_nd.out",
       {matrix(), ints({-kMax - 1, 0}), 0.0},
       {matrix()},
       "out of range"},
  });
}

TEST(Fill, MakesValuesFromScalars) {
  check_cases({
      {"aten::full.out", {ints({2, 2}), 1.5}, {f32({2, 2}, {1.5, 1.5, 1.5, 1.5})}},
      {"aten::full_like.out", {matrix(), -1.0, NoValue{}}, {f32({2, 3}, {-1, -1, -1, -1, -1, -1})}},
      {"aten::fill.Scalar_out", {matrix(), true}, {f32({2, 3}, {1, 1, 1, 1, 1, 1})}},
      {"aten::fill.Tensor_out", {f32({2}, {0, 0}), i64({}, {3})}, {f32({2}, {3, 3})}},
      {"aten::zeros.out", {ints({3})}, {i64({3}, {0, 0, 0})}},
      {"aten::ones.out", {ints({3})}, {boolean({3}, {1, 1, 1})}},
      {"aten::scalar_tensor.out", {integer(7)}, {i64({}, {7})}},
      {"aten::arange.out", {integer(3)}, {i64({3}, {0, 1, 2})}},
      {"aten::arange.start_out", {integer(5), integer(0), integer(-2)}, {i64({3}, {5, 3, 1})}},
      {"aten::arange.start_out", {0.0, 1.0, 0.3}, {f32({4}, {0, 0.3, 0.6, 0.9})}},
      {"aten::arange.start_out", {integer(2), integer(2), integer(1)}, {i64({0}, {})}},
  });
  check_refused({
      {"aten::arange.start_out", {integer(0), integer(3), integer(0)}, {i64({3}, {})}, "step of 0"},
      {"aten::arange.start_out",
       {integer(0), integer(-3), integer(1)},
       {i64({3}, {})},
       "does not fit"},
      {"aten::arange.start_out",
       {integer(-kMax), integer(kMax), integer(1)},
       {i64({3}, {})},
       "does not fit"},
      {"aten::arange.out", {std::nan("")}, {f32({3}, {})}, "does not fit"},
      {"aten::full.out", {ints({-1}), 1.5}, {f32({1}, {})}, "result's shape"},
      {"aten::full.out", {ints(std::vector<int64_t>(17, 1)), 1.5}, {f32({1}, {})}, "17 sizes"},
  });
}

}  // namespace
}  // namespace ferry::runner::rearrange_test
