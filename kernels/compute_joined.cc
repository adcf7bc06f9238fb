// joined_bmm_f32() multiplies with a matrix in two pieces and reads the first piece in its stored
// dtype. For a few rows it reads the matrix once from one end to the other; many rows share tiles
// of the matrix. Both ways add in the order of bmm_f32.
#include "core/highway_targets.h"
// This include must follow the choice of targets.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/compute_joined.cc"
#include "hwy/foreach_target.h"
// This include must follow foreach_target.h.
#include "kernels/compute.h"
#include "kernels/compute_scratch.h"
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

// Calls body(begin, end) for the rows of the matrix that are used.
template <class T, class Body>
HWY_INLINE void for_used_rows(const Joined<T>& x, const Body& body) {
  if (x.args.b.columns || x.args.seen.empty()) return body(size_t{0}, x.args.k);
  for (const ColumnRange& rows : x.args.seen) {
    body(static_cast<size_t>(rows.begin), static_cast<size_t>(rows.end));
  }
}

template <class T>
void few_rows_of_columns(const Joined<T>& x) {
  const size_t split = x.first_columns() < x.end ? x.first_columns() : x.end;
  if (x.begin < split) {
    WeightedSums sums = x.sums(0, x.args.k, x.begin, split - x.begin);
    sums.rows_stride = x.first_columns();
    stream_sums(x.from(0, x.begin), sums);
  }
  const size_t j = x.begin < split ? split : x.begin;
  if (j >= x.end) return;
  const WeightedSums sums = x.sums(0, x.args.k, j, x.end - j);
  stream_sums(Stored<float>{sums.rows, 1.0f, 0}, sums);
}

template <class T>
void few_rows(const Joined<T>& x) {
  if (x.args.b.columns) return few_rows_of_columns(x);
  for_used_rows(x, [&](size_t begin, size_t end) HWY_ATTR {
    const size_t width = x.end - x.begin, count = x.args.b.count;
    const size_t split = end < count ? end : count;
    if (begin < split) {
      stream_sums(x.from(begin, x.begin), x.sums(begin, split - begin, x.begin, width));
    }
    const size_t row = begin < count ? count : begin;
    if (row >= end) return;
    const WeightedSums sums = x.sums(row, end - row, x.begin, width);
    stream_sums(Stored<float>{sums.rows, 1.0f, 0}, sums);
  });
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
  for_used_rows(x, [&](size_t begin, size_t end) HWY_ATTR {
    for (size_t row = begin; row < end; row += kJoinedTileRows) {
      const size_t depth = end - row < kJoinedTileRows ? end - row : kJoinedTileRows;
      fill_tile(x, row, depth, tile);
      WeightedSums sums = x.sums(row, depth, x.begin, x.end - x.begin);
      sums.rows = tile;
      sums.rows_stride = kJoinedTileCols;
      weighted_sums(sums);
    }
  });
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

template <class T>
Joined<T> joined_part(const JoinedProduct& p, size_t item, size_t begin, size_t end) {
  const size_t first = p.b.count * (p.b.columns ? p.k : p.n);
  return {p,
          {static_cast<const T*>(p.b.first) + item * first, p.b.scale, p.b.zero_point},
          p.b.whole + item * p.k * p.n,
          nullptr,
          nullptr,
          begin,
          end};
}

template <class T>
void block_scores(const AttentionBlock& b, float* tile) {
  const JoinedProduct keys = b.keys();
  const float* query = b.args.query + b.query_row() * b.args.dim;
  std::memset(b.scores, 0, b.count * b.width * sizeof(float));
  size_t at = 0;
  for (const ColumnRange& range : b.seen) {
    for (size_t c = static_cast<size_t>(range.begin), end = static_cast<size_t>(range.end);
         c < end;) {
      const size_t step = end - c < kJoinedTileCols ? end - c : kJoinedTileCols;
      const Joined<T> part = joined_part<T>(keys, b.item, c, c + step);
      for (size_t k = 0; k < b.args.dim; k += kJoinedTileRows) {
        const size_t left = b.args.dim - k, depth = left < kJoinedTileRows ? left : kJoinedTileRows;
        fill_tile(part, k, depth, tile);
        weighted_sums({query + k, b.args.dim, b.count, tile, kJoinedTileCols, depth, b.scores + at,
                       b.width, step});
      }
      c += step;
      at += step;
    }
  }
}

inline void block_weights(const AttentionBlock& b) {
  for (size_t r = 0; r < b.count; ++r) {
    const float* mask = b.args.mask + (b.token + r) * b.args.context;
    float* row = b.scores + r * b.width;
    float* part = row;
    for (const ColumnRange& range : b.seen) {
      add_f32(part, mask + range.begin, part, range.end - range.begin);
      part += range.end - range.begin;
    }
    softmax_row_f32(row, row, static_cast<int64_t>(b.width));
  }
}

template <class T>
void block_values(const AttentionBlock& b, float* tile) {
  const JoinedProduct values = b.values();
  const size_t n = b.args.value_dim;
  float* out = b.args.out + b.query_row() * n;
  std::memset(out, 0, b.count * n * sizeof(float));
  for (size_t c = 0; c < n; c += kJoinedTileCols) {
    const size_t width = n - c < kJoinedTileCols ? n - c : kJoinedTileCols;
    const Joined<T> part = joined_part<T>(values, b.item, c, c + width);
    size_t at = 0;
    for (const ColumnRange& range : b.seen) {
      for (size_t k = static_cast<size_t>(range.begin), end = static_cast<size_t>(range.end);
           k < end;) {
        const size_t depth = end - k < kJoinedTileRows ? end - k : kJoinedTileRows;
        fill_tile(part, k, depth, tile);
        weighted_sums(
            {b.scores + at, b.width, b.count, tile, kJoinedTileCols, depth, out + c, n, width});
        k += depth;
        at += depth;
      }
    }
  }
}

template <class T>
void attention_block(const AttentionBlock& b) {
  HWY_ALIGN float tile[kJoinedTileRows * kJoinedTileCols];
  block_scores<T>(b, tile);
  block_weights(b);
  block_values<T>(b, tile);
}

void attention_task(const AttentionBlock& b) {
  switch (b.args.keys.dtype) {
    case DType::kBF16:
      return attention_block<BF16>(b);
    case DType::kF16:
      return attention_block<F16>(b);
    case DType::kU8:
      return attention_block<uint8_t>(b);
    case DType::kU16:
      return attention_block<uint16_t>(b);
    default:
      return attention_block<float>(b);
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

HWY_EXPORT(attention_task);
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
  const ColumnRange whole[] = {{0, static_cast<int64_t>(product.n)}};
  std::span<const ColumnRange> columns = whole;
  if (product.b.columns && !product.seen.empty()) columns = product.seen;
  const auto tasks_of = [&](const ColumnRange& range) {
    return (static_cast<size_t>(range.end - range.begin) + step - 1) / step;
  };
  size_t parts = 0;
  for (const ColumnRange& range : columns) parts += tasks_of(range);
  const auto run = [&](size_t task) {
    size_t part = task % parts, i = 0;
    while (part >= tasks_of(columns[i])) part -= tasks_of(columns[i++]);
    const size_t begin = static_cast<size_t>(columns[i].begin) + part * step;
    HWY_DYNAMIC_DISPATCH(joined_task)
    (product, task / parts, begin, std::min(static_cast<size_t>(columns[i].end), begin + step));
  };
  // std::ref avoids a copy of the task, which would allocate.
  pool.parallel_for(product.batch * parts, std::ref(run));
}

void masked_attention_f32(const MaskedAttention& a, ThreadPool& pool) {
  const size_t blocks = a.seen.size();
  const auto run = [&](size_t task) {
    const size_t block = task % blocks, head = task / blocks;
    const size_t token = block * SeenMask::kRows;
    const std::span<const ColumnRange> seen = a.seen[block].steps.span();
    size_t width = 0;
    for (const ColumnRange& range : seen) width += static_cast<size_t>(range.end - range.begin);
    const size_t count = std::min<size_t>(SeenMask::kRows, a.tokens - token);
    const Scratch scores(count * width);
    HWY_DYNAMIC_DISPATCH(attention_task)
    ({a, seen, head / a.groups, head % a.groups * a.tokens + token, count, token, width,
      scores.data()});
  };
  // std::ref avoids a copy of the task, which would allocate.
  pool.parallel_for(a.batch * a.groups * blocks, std::ref(run));
}

}  // namespace ferry::kernels
#endif  // HWY_ONCE
