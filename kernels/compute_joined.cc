// joined_bmm_f32() multiplies with a matrix in two pieces and reads the first piece in its stored
// dtype. For a few rows it reads the matrix once from one end to the other; many rows share tiles
// of the matrix. Both ways add in the order of bmm_f32.
#include "kernels/compute_targets.h"
// This include must follow the choice of targets.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/compute_joined.cc"
#include "hwy/foreach_target.h"
// This include must follow foreach_target.h.
#include "kernels/compute_weighted-inl.h"
#include "kernels/joined.h"

HWY_BEFORE_NAMESPACE();
namespace ferry::kernels {
namespace HWY_NAMESPACE {

// A task computes columns [begin, end) of one matrix of the batch.
template <class T>
struct Joined {
  const JoinedProduct& args;
  Stored<T> first;     // the first piece of this matrix
  const float* whole;  // this matrix; only the second piece is read
  const float* a;
  float* out;
  size_t begin, end;

  size_t first_columns() const { return args.b.columns ? args.b.count : args.n; }
  size_t first_rows() const { return args.b.columns ? args.k : args.b.count; }
  Stored<T> from(size_t row, size_t column) const {
    return {first.at + row * first_columns() + column, first.scale, first.zero_point};
  }
  // Returns the sums over rows [row, row + count) for columns [j, j + width).
  WeightedSums sums(size_t row, size_t count, size_t j, size_t width) const {
    return {a + row, args.k, args.m, whole + row * args.n + j, args.n, count,
            out + j, args.n, width};
  }
};

template <class T>
void few_rows(const Joined<T>& x) {
  const size_t split = x.first_columns() < x.end ? x.first_columns() : x.end;
  if (x.begin < split) {
    WeightedSums sums = x.sums(0, x.first_rows(), x.begin, split - x.begin);
    sums.rows_stride = x.first_columns();
    stream_sums(x.from(0, x.begin), sums);
  }
  const auto rest = [&](size_t row, size_t j) {
    if (j >= x.end) return;
    const WeightedSums sums = x.sums(row, x.args.k - row, j, x.end - j);
    stream_sums(Stored<float>{sums.rows, 1.0f, 0}, sums);
  };
  if (x.args.b.columns) {
    rest(0, x.begin < split ? split : x.begin);
  } else {
    rest(x.args.b.count, x.begin);
  }
}

// Converts rows [row, row + depth) of the columns to f32.
template <class T>
void fill_tile(const Joined<T>& x, size_t row, size_t depth, float* tile) {
  const size_t width = x.end - x.begin;
  for (size_t r = row; r < row + depth; ++r, tile += kJoinedTileCols) {
    const size_t limit = r < x.first_rows() ? x.first_columns() : 0;
    const size_t first = limit <= x.begin ? 0 : limit - x.begin < width ? limit - x.begin : width;
    if (first > 0) widen_stored(x.from(r, x.begin), first, tile);
    std::memcpy(tile + first, x.whole + r * x.args.n + x.begin + first,
                (width - first) * sizeof(float));
  }
}

template <class T>
void many_rows(const Joined<T>& x) {
  HWY_ALIGN float tile[kJoinedTileRows * kJoinedTileCols];
  for (size_t row = 0; row < x.args.k; row += kJoinedTileRows) {
    const size_t left = x.args.k - row, depth = left < kJoinedTileRows ? left : kJoinedTileRows;
    fill_tile(x, row, depth, tile);
    WeightedSums sums = x.sums(row, depth, x.begin, x.end - x.begin);
    sums.rows = tile;
    sums.rows_stride = kJoinedTileCols;
    weighted_sums(sums);
  }
}

template <class T>
void joined_columns(const JoinedProduct& args, size_t item, size_t begin, size_t end) {
  const size_t first = args.b.count * (args.b.columns ? args.k : args.n);
  const Joined<T> x{
      args,
      {static_cast<const T*>(args.b.first) + item * first, args.b.scale, args.b.zero_point},
      args.b.whole + item * args.k * args.n,
      args.a + item * args.m * args.k,
      args.out + item * args.m * args.n,
      begin,
      end};
  for (size_t i = 0; i < args.m; ++i) {
    std::memset(x.out + i * args.n + begin, 0, (end - begin) * sizeof(float));
  }
  if (args.m < kJoinedManyRows) {
    few_rows(x);
  } else {
    many_rows(x);
  }
}

// Computes columns [begin, end) of matrix `item`. For many rows they are at most kJoinedTileCols.
void joined_task(const JoinedProduct& args, size_t item, size_t begin, size_t end) {
  switch (args.b.dtype) {
    case DType::kBF16:
      return joined_columns<BF16>(args, item, begin, end);
    case DType::kF16:
      return joined_columns<F16>(args, item, begin, end);
    case DType::kU8:
      return joined_columns<uint8_t>(args, item, begin, end);
    case DType::kU16:
      return joined_columns<uint16_t>(args, item, begin, end);
    default:
      return joined_columns<float>(args, item, begin, end);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace ferry::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <algorithm>
#include <functional>

namespace ferry::kernels {
namespace {

HWY_EXPORT(joined_task);

// The results of a few rows stay in the first cache while the matrix streams by.
constexpr size_t kPanelValues = 4096;
constexpr size_t kLeastPanel = 64;

// Returns the columns of a task: adjacent columns, with enough tasks for all threads.
size_t columns_of_task(const JoinedProduct& args, size_t threads) {
  if (args.m >= kJoinedManyRows) return kJoinedTileCols;
  const size_t shares = (2 * threads + args.batch - 1) / args.batch;
  const size_t share = round_up((args.n + shares - 1) / shares, kLeastPanel);
  return std::clamp(share, kLeastPanel, round_up(kPanelValues / args.m, kLeastPanel));
}

}  // namespace

void joined_bmm_f32(const JoinedProduct& product, ThreadPool& pool) {
  if (product.batch == 0 || product.m == 0 || product.n == 0) return;
  const size_t step = columns_of_task(product, pool.size());
  const size_t parts = (product.n + step - 1) / step;
  const auto run = [&](size_t task) {
    const size_t begin = task % parts * step;
    HWY_DYNAMIC_DISPATCH(joined_task)
    (product, task / parts, begin, std::min(product.n, begin + step));
  };
  // std::ref avoids a copy of the task, which would allocate.
  pool.parallel_for(product.batch * parts, std::ref(run));
}

}  // namespace ferry::kernels
#endif  // HWY_ONCE
