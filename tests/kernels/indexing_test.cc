// Operators that read or write at positions that tensors hold.
#include <cmath>

#include "tests/runner/op_cases.h"

namespace ferry::runner::indexing_test {
namespace {

// The values are
//    0  1  2  3
//    4  5  6  7
//    8  9 10 11
Values grid() { return f32({3, 4}, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}); }

std::vector<Arg> embedding_args(const Values& table, const Values& ids) {
  return {table, ids, integer(-1), false, false};
}

TEST(Index, EmbeddingTakesRows) {
  check_cases({
      {"aten::embedding.out",
       embedding_args(grid(), i64({1, 2}, {2, 0})),
       {f32({1, 2, 4}, {8, 9, 10, 11, 0, 1, 2, 3})}},
      {"aten::embedding.out",
       embedding_args(grid(), Values{DType::kI32, {}, {1}}),
       {f32({4}, {4, 5, 6, 7})}},
  });
  check_refused({
      {"aten::embedding.out",
       embedding_args(grid(), i64({1}, {3})),
       {f32({1, 4}, {})},
       "index 3 in value 1 is outside of a dimension of 3"},
      {"aten::embedding.out",
       embedding_args(grid(), i64({1}, {-1})),
       {f32({1, 4}, {})},
       "index -1"},
      {"aten::embedding.out",
       embedding_args(grid(), f32({1}, {0})),
       {f32({1, 4}, {})},
       "to be an index"},
  });
}

TEST(Index, IndexingBroadcastsAndPlacesDimensionsAsTorchDoes) {
  const Values cube = f32({2, 2, 3}, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11});
  check_cases({
      {"aten::index.Tensor_out",
       {grid(), TensorArgs{i64({2}, {2, -3})}},
       {f32({2, 4}, {8, 9, 10, 11, 0, 1, 2, 3})}},
      {"aten::index.Tensor_out",
       {grid(), TensorArgs{std::nullopt, i64({2}, {3, 1})}},
       {f32({3, 2}, {3, 1, 7, 5, 11, 9})}},
      {"aten::index.Tensor_out",
       {grid(), TensorArgs{i64({2, 1}, {0, 2}), i64({2}, {1, 3})}},
       {f32({2, 2}, {1, 3, 9, 11})}},
      {"aten::index.Tensor_out",
       {cube, TensorArgs{std::nullopt, i64({1}, {1}), i64({2}, {2, 0})}},
       {f32({2, 2}, {5, 3, 11, 9})}},
      // If the indexed dimensions are not neighbours, their common dimension comes first.
      {"aten::index.Tensor_out",
       {cube, TensorArgs{i64({2}, {0, 1}), std::nullopt, i64({}, {2})}},
       {f32({2, 2}, {2, 5, 8, 11})}},
  });
  check_refused({
      {"aten::index.Tensor_out", {grid(), TensorArgs{i64({1}, {3})}}, {f32({1, 4}, {})}, "index 3"},
      {"aten::index.Tensor_out",
       {grid(), TensorArgs{i64({1}, {-4})}},
       {f32({1, 4}, {})},
       "index -4"},
      {"aten::index.Tensor_out", {grid(), TensorArgs{std::nullopt}}, {grid()}, "no dimension"},
      {"aten::index.Tensor_out",
       {grid(), TensorArgs{boolean({3}, {1, 0, 1})}},
       {f32({2, 4}, {})},
       "to be an index"},
      {"aten::index.Tensor_out",
       {grid(), TensorArgs{i64({1}, {0}), i64({1}, {0}), i64({1}, {0})}},
       {f32({1}, {})},
       "3 indices"},
  });
}

TEST(Index, IndexPutWritesWhereIndexReads) {
  check_cases({
      {"aten::index_put.out",
       {grid(), TensorArgs{i64({2}, {2, 0})}, f32({2, 4}, {20, 21, 22, 23, 24, 25, 26, 27}), false},
       {f32({3, 4}, {24, 25, 26, 27, 4, 5, 6, 7, 20, 21, 22, 23})}},
      {"aten::index_put.out",
       {grid(), TensorArgs{std::nullopt, i64({1}, {-1})}, f32({3, 1}, {7, 8, 9}), false},
       {f32({3, 4}, {0, 1, 2, 7, 4, 5, 6, 8, 8, 9, 10, 9})}},
      // A scalar is written to every place.
      {"aten::index_put.out",
       {grid(), TensorArgs{i64({2}, {0, 1}), i64({2}, {1, 2})}, f32({}, {-1}), false},
       {f32({3, 4}, {0, -1, 2, 3, 4, 5, -1, 7, 8, 9, 10, 11})}},
  });
  check_refused({
      {"aten::index_put.out",
       {grid(), TensorArgs{i64({1}, {3})}, f32({}, {1}), false},
       {grid()},
       "index 3"},
      {"aten::index_put.out",
       {grid(), TensorArgs{i64({1}, {0})}, f32({2, 4}, {1, 2, 3, 4, 5, 6, 7, 8}), false},
       {grid()},
       "must have shape"},
  });
}

// This is the cache update of programs without llama::update_cache: [1, heads, context, dim] at
// positions.
TEST(Index, IndexPutOfACache) {
  Values cache = f32({1, 2, 3, 2}, std::vector<double>(12, 0));
  Values want = cache;
  const Values rows = f32({1, 2, 2, 2}, {1, 2, 3, 4, 5, 6, 7, 8});
  for (size_t head = 0; head < 2; ++head) {
    for (size_t i = 0; i < 4; ++i) want.values[head * 6 + 2 + i] = rows.values[head * 4 + i];
  }
  check_cases({{"aten::index_put.out",
                {cache, TensorArgs{std::nullopt, std::nullopt, i64({2}, {1, 2})}, rows, false},
                {want}}});
}

TEST(Index, NonzeroListsPlacesInRowMajorOrder) {
  check_cases({
      {"aten::nonzero.out",
       {boolean({2, 3}, {0, 1, 0, 1, 0, 1})},
       {i64({3, 2}, {0, 1, 1, 0, 1, 2})}},
      {"aten::nonzero.out", {i64({4}, {0, -7, 0, 2})}, {i64({2, 1}, {1, 3})}},
      // NaN counts as nonzero, minus zero does not.
      {"aten::nonzero.out", {f32({3}, {std::nan(""), -0.0, 1e-30})}, {i64({2, 1}, {0, 2})}},
      {"aten::nonzero.out", {boolean({2, 1, 2}, {1, 0, 0, 1})}, {i64({2, 3}, {0, 0, 0, 1, 0, 1})}},
      {"aten::nonzero.out", {boolean({2, 2}, {0, 0, 0, 0})}, {i64({0, 2}, {})}},
  });
  check_refused({
      {"aten::nonzero.out", {boolean({2}, {1, 1})}, {f32({2, 1}, {})}, "must be i64"},
      {"aten::nonzero.out", {boolean({2}, {1, 1})}, {i64({1, 1}, {})}, "value 1"},
  });
}

TEST(Index, SelectGatherAndScatter) {
  check_cases({
      {"aten::index_select.out",
       {grid(), integer(1), i64({2}, {3, 0})},
       {f32({3, 2}, {3, 0, 7, 4, 11, 8})}},
      {"aten::gather.out",
       {grid(), integer(1), i64({2, 2}, {3, 0, 1, 1}), false},
       {f32({2, 2}, {3, 0, 5, 5})}},
      {"aten::gather.out",
       {grid(), integer(0), i64({1, 4}, {2, 1, 0, 2}), false},
       {f32({1, 4}, {8, 5, 2, 11})}},
      {"aten::scatter.src_out",
       {grid(), integer(1), i64({2, 1}, {3, 0}), f32({2, 2}, {20, 21, 22, 23})},
       {f32({3, 4}, {0, 1, 2, 20, 22, 5, 6, 7, 8, 9, 10, 11})}},
  });
  check_refused({
      {"aten::index_select.out", {grid(), integer(1), i64({1}, {4})}, {f32({3, 1}, {})}, "index 4"},
      {"aten::gather.out",
       {grid(), integer(1), i64({1, 1}, {4}), false},
       {f32({1, 1}, {})},
       "index 4"},
      {"aten::gather.out",
       {grid(), integer(1), i64({4, 1}, {0, 0, 0, 0}), false},
       {f32({4, 1}, {})},
       "must have shape"},
      {"aten::scatter.src_out",
       {grid(), integer(1), i64({1, 1}, {-1}), f32({1, 1}, {1})},
       {grid()},
       "index -1"},
      {"aten::scatter.src_out",
       {grid(), integer(1), i64({1, 2}, {0, 1}), f32({1, 1}, {1})},
       {grid()},
       "must have shape"},
  });
}

}  // namespace
}  // namespace ferry::runner::indexing_test
