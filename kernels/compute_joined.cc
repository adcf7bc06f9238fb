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

// Calls body() with a value of the type of the first piece.
template <class Body>
HWY_INLINE void with_stored(DType dtype, const Body& body) {
  switch (dtype) {
    case DType::kBF16:
      return body(BF16());
    case DType::kF16:
      return body(F16());
    case DType::kU8:
      return body(uint8_t());
    case DType::kU16:
      return body(uint16_t());
    default:
      return body(0.0f);
  }
}

// A task computes columns [begin, end) of one matrix of the batch.
template <class T>
struct Joined {
  const JoinedProduct& args;
  Stored<T> first;    // the first piece of this matrix
  const float* rest;  // the second piece of this matrix
  const float* a;
  float* out;
  size_t begin, end;

  size_t first_columns() const { return args.b.columns ? args.b.count : args.n; }
  size_t first_rows() const { return args.b.columns ? args.k : args.b.count; }
  size_t stored_columns() const { return args.b.columns ? args.b.stored : args.n; }
  size_t stored_rows() const { return args.b.columns ? args.k : args.b.stored; }
  Stored<T> from(size_t row, size_t column) const {
    return {first.at + row * args.b.first_stride + column, first.scale, first.zero_point};
  }
  Stored<float> rest_from(size_t row, size_t column) const {
    const size_t skipped = args.b.columns ? args.b.count : args.b.count * args.b.rest_stride;
    return {rest + row * args.b.rest_stride + column - skipped, 1.0f, 0};
  }
  // Returns the sums over rows [row, row + count) for columns [j, j + width), whose rows in memory
  // are `stride` apart.
  WeightedSums sums(size_t row, size_t count, size_t j, size_t width, size_t stride) const {
    return {a + row, args.k, args.m, nullptr, stride, count, out + j, args.n, width};
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
    stream_sums(x.from(0, x.begin),
                x.sums(0, x.args.k, x.begin, split - x.begin, x.args.b.first_stride));
  }
  const size_t j = x.begin < split ? split : x.begin;
  if (j >= x.end) return;
  stream_sums(x.rest_from(0, j), x.sums(0, x.args.k, j, x.end - j, x.args.b.rest_stride));
}

template <class T>
void few_rows(const Joined<T>& x) {
  if (x.args.b.columns) return few_rows_of_columns(x);
  for_used_rows(x, [&](size_t begin, size_t end) HWY_ATTR {
    const size_t width = x.end - x.begin, count = x.args.b.count;
    const size_t split = end < count ? end : count;
    if (begin < split) {
      stream_sums(x.from(begin, x.begin),
                  x.sums(begin, split - begin, x.begin, width, x.args.b.first_stride));
    }
    const size_t row = begin < count ? count : begin;
    if (row >= end) return;
    stream_sums(x.rest_from(row, x.begin),
                x.sums(row, end - row, x.begin, width, x.args.b.rest_stride));
  });
}

// Converts rows [row, row + depth) of the columns to f32.
template <class T>
void fill_tile(const Joined<T>& x, size_t row, size_t depth, float* tile) {
  const size_t width = x.end - x.begin;
  for (size_t r = row; r < row + depth; ++r, tile += kJoinedTileCols) {
    const auto within = [&](size_t columns) {
      return columns <= x.begin ? 0 : columns - x.begin < width ? columns - x.begin : width;
    };
    const size_t first = within(r < x.first_rows() ? x.first_columns() : 0);
    const size_t stored = within(r < x.stored_rows() ? x.stored_columns() : 0);
    if (stored > 0) widen_stored(x.from(r, x.begin), stored, tile);
    if (stored < first) std::memset(tile + stored, 0, (first - stored) * sizeof(float));
    if (first == width) continue;
    std::memcpy(tile + first, x.rest_from(r, x.begin + first).at, (width - first) * sizeof(float));
  }
}

template <class T>
void many_rows(const Joined<T>& x) {
  HWY_ALIGN float tile[kJoinedTileRows * kJoinedTileCols];
  for_used_rows(x, [&](size_t begin, size_t end) HWY_ATTR {
    for (size_t row = begin; row < end; row += kJoinedTileRows) {
      const size_t depth = end - row < kJoinedTileRows ? end - row : kJoinedTileRows;
      fill_tile(x, row, depth, tile);
      WeightedSums sums = x.sums(row, depth, x.begin, x.end - x.begin, kJoinedTileCols);
      sums.rows = tile;
      weighted_sums(sums);
    }
  });
}

template <class T>
void joined_columns(const JoinedProduct& args, size_t item, size_t begin, size_t end) {
  const Joined<T> x{args,
                    {static_cast<const T*>(args.b.first) + item * args.b.first_item, args.b.scale,
                     args.b.zero_point},
                    args.b.rest + item * args.b.rest_item,
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
  with_stored(args.b.dtype, [&](auto stored) HWY_ATTR {
    joined_columns<decltype(stored)>(args, item, begin, end);
  });
}

template <class T>
Joined<T> joined_part(const JoinedProduct& p, size_t item, size_t begin, size_t end) {
  return {p,
          {static_cast<const T*>(p.b.first) + item * p.b.first_item, p.b.scale, p.b.zero_point},
          p.b.rest + item * p.b.rest_item,
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
  with_stored(b.args.keys.dtype,
              [&](auto stored) HWY_ATTR { attention_block<decltype(stored)>(b); });
}

// ---- attention of a few rows

// Calls body(begin, end, at) for the columns [begin, end) whose products are needed. Counted over
// these alone, they are a part of [from, to). The scores of a column lie at `at`.
template <class Body>
HWY_INLINE void for_parts(const FewRowsAttention& x, size_t from, size_t to, const Body& body) {
  const ColumnRange* step = x.seen.steps.ranges;
  size_t counted = 0, place = 0;  // columns of `fine` and `steps` before these
  for (const ColumnRange& fine : x.seen.fine.span()) {
    while (step->end < fine.end) {
      place += static_cast<size_t>(step->end - step->begin);
      ++step;
    }
    const auto count = static_cast<size_t>(fine.end - fine.begin);
    const size_t begin = from > counted ? from - counted : 0;
    const size_t end = to < counted + count ? to < counted ? 0 : to - counted : count;
    if (begin < end) {
      const auto first = static_cast<size_t>(fine.begin);
      const size_t at = place + static_cast<size_t>(fine.begin - step->begin);
      body(first + begin, first + end, at + begin);
    }
    counted += count;
  }
}

template <class T>
HWY_INLINE void add_rows(const Stored<T>& rows, WeightedSums sums) {
  if constexpr (std::is_same_v<T, float>) {
    sums.rows = rows.at;
    weighted_sums(sums);
  } else {
    stream_sums(rows, sums);
  }
}

// Returns the end of what is stored of [begin, end).
HWY_INLINE size_t end_of_stored(size_t stored, size_t begin, size_t end) {
  return end < stored ? end : begin > stored ? begin : stored;
}

// Computes the scores of columns [begin, end) of those whose products are needed.
template <class T>
void few_scores(const FewRowsAttention& x, size_t begin, size_t end) {
  const JoinedProduct keys = x.keys();
  const float* const query = x.args.query + x.item * x.rows * x.args.dim;
  for_parts(x, begin, end, [&](size_t c, size_t c_end, size_t at) HWY_ATTR {
    const Joined<T> part = joined_part<T>(keys, x.item, c, c_end);
    const size_t count = part.first_columns();
    const size_t split = c_end < count ? c_end : c > count ? c : count;
    const size_t stored = end_of_stored(part.stored_columns(), c, c_end);
    for (size_t r = 0; r < x.rows; ++r) {
      std::memset(x.scores + r * x.width + at, 0, (c_end - c) * sizeof(float));
    }
    WeightedSums sums{query,      x.args.dim,    x.rows,  nullptr,   x.args.keys.first_stride,
                      x.args.dim, x.scores + at, x.width, stored - c};
    if (c < stored) add_rows(part.from(0, c), sums);
    if (split == c_end) return;
    sums.rows_stride = x.args.keys.rest_stride;
    sums.out += split - c;
    sums.width = c_end - split;
    add_rows(part.rest_from(0, split), sums);
  });
}

// Makes weights of the scores of all rows, in `weights` [rows,width].
inline void few_weights(const FewRowsAttention& x, float* weights) {
  for (size_t r = 0; r < x.rows; ++r) {
    const float* const mask = x.args.mask + r % x.args.tokens * x.args.context;
    float* const row = weights + r * x.width;
    float* to = row;
    for (const ColumnRange& step : x.seen.steps.span()) {
      const auto count = static_cast<size_t>(step.end - step.begin);
      std::memcpy(to, mask + step.begin, count * sizeof(float));
      to += count;
    }
    for_parts(x, 0, x.args.context, [&](size_t c, size_t c_end, size_t at) HWY_ATTR {
      add_f32(x.scores + r * x.width + at, mask + c, row + at, static_cast<int64_t>(c_end - c));
    });
    softmax_row_f32(row, row, static_cast<int64_t>(x.width));
  }
}

// Computes columns [begin, end) of the result.
template <class T>
void few_values(const FewRowsAttention& x, const float* weights, size_t begin, size_t end) {
  const size_t n = x.args.value_dim, width = end - begin;
  const JoinedProduct values = x.values();
  const Joined<T> part = joined_part<T>(values, x.item, begin, end);
  float* const out = x.args.out + x.item * x.rows * n + begin;
  for (size_t r = 0; r < x.rows; ++r) std::memset(out + r * n, 0, width * sizeof(float));
  const size_t count = part.first_rows();
  for_parts(x, 0, x.args.context, [&](size_t k, size_t k_end, size_t at) HWY_ATTR {
    const size_t split = k_end < count ? k_end : k > count ? k : count;
    const size_t stored = end_of_stored(part.stored_rows(), k, k_end);
    WeightedSums sums{weights + at, x.width, x.rows, nullptr, x.args.values.first_stride,
                      stored - k,   out,     n,      width};
    if (k < stored) add_rows(part.from(k, begin), sums);
    if (split == k_end) return;
    sums.weights += split - k;
    sums.rows_stride = x.args.values.rest_stride;
    sums.count = k_end - split;
    add_rows(part.rest_from(split, begin), sums);
  });
}

template <class T>
void few_rows_part(const FewRowsAttention& x, float* weights, size_t begin, size_t end) {
  if (weights == nullptr) return few_scores<T>(x, begin, end);
  few_weights(x, weights);
  few_values<T>(x, weights, begin, end);
}

// Without memory for weights, computes scores.
void few_rows_task(const FewRowsAttention& x, float* weights, size_t begin, size_t end) {
  with_stored(x.args.keys.dtype, [&](auto stored) HWY_ATTR {
    few_rows_part<decltype(stored)>(x, weights, begin, end);
  });
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
HWY_EXPORT(few_rows_task);
HWY_EXPORT(joined_task);

// The results of a few rows stay in the first cache while the matrix streams by.
constexpr size_t kPanelValues = 4096;
constexpr size_t kLeastPanel = 64;
// Parts of attention of a few rows are multiples of a vector.
constexpr size_t kLeastPart = 16;

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

// Computes scores, then weights and results; every task of the second step makes the weights of its
// rows, which cost little beside the columns of values that it adds.
void attention_of_few_rows(const MaskedAttention& a, ThreadPool& pool) {
  const SeenColumns& seen = a.seen.front();
  const size_t rows = a.groups * a.tokens;
  const size_t width = seen.steps.columns();
  const Scratch scores(a.batch * rows * width);
  const size_t shares = (2 * pool.size() + a.batch - 1) / a.batch;
  const auto in_parts = [&](size_t count, bool weigh) {
    const size_t step = round_up((count + shares - 1) / shares, kLeastPart);
    const size_t parts = (count + step - 1) / step;
    const auto run = [&](size_t task) {
      const size_t item = task / parts, begin = task % parts * step;
      const Scratch weights(weigh ? rows * width : 0);
      HWY_DYNAMIC_DISPATCH(few_rows_task)
      ({a, seen, item, rows, width, scores.data() + item * rows * width}, weights.data(), begin,
       std::min(count, begin + step));
    };
    // std::ref avoids a copy of the task, which would allocate.
    pool.parallel_for(a.batch * parts, std::ref(run));
  };
  in_parts(seen.fine.columns(), false);
  in_parts(a.value_dim, true);
}

void masked_attention_f32(const MaskedAttention& a, ThreadPool& pool) {
  if (a.groups * a.tokens < kJoinedManyRows) return attention_of_few_rows(a, pool);
  const size_t blocks = a.seen.size();
  const auto run = [&](size_t task) {
    const size_t block = task % blocks, head = task / blocks;
    const size_t token = block * SeenMask::kRows;
    const std::span<const ColumnRange> seen = a.seen[block].steps.span();
    const size_t width = a.seen[block].steps.columns();
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
