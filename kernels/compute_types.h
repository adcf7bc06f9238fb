// Types that the per-target parts of the compute kernels share with their callers. They are not
// part of the interface.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/dtype.h"
#include "kernels/compute.h"
#include "kernels/dtypes.h"
#include "kernels/fetch_ahead.h"

namespace ferry::kernels {

// No target has more f32 lanes. Copied rows are padded with zeros to a multiple.
constexpr size_t kMaxLanes = 16;

constexpr size_t round_up(size_t n, size_t unit) { return (n + unit - 1) / unit * unit; }

// Computes out[i, j] = x_i * w_j over k values. x is f32 and padded with zeros to a multiple of
// kMaxLanes; w and out have one type.
// and out have one type.
struct RowProducts {
  const float* x;
  size_t x_stride, m;
  const void* w;
  size_t w_stride;
  void* out;
  size_t out_stride, k;
  FetchDistance ahead = {};  // FetchAhead::band, for banded_products()
};
constexpr size_t kMaxTileCols = 6;

// ---- linear

// x is f32 with rows of x_stride values, which are zero from k to the next multiple of kMaxLanes.
struct LinearArgs {
  DType dtype;
  const float* x;
  size_t x_stride;
  const void* w;
  void* out;
  size_t m, n, k;
};

// A batch is computed in blocks: kBlockRows rows of x by kBlockDepth of k stay in L2, one tile of
// weights stays in L1.
constexpr size_t kBlockRows = 128;
constexpr size_t kBlockDepth = 1024;
constexpr size_t kTaskCols = 24;  // a multiple of every tile width
constexpr size_t kMaxTaskCols = 48;

constexpr size_t block_scratch(size_t cols) {
  return kMaxTileCols * kBlockDepth + kBlockRows * cols * kMaxLanes;
}

// ---- depthwise convolution: x (channels, length), w (channels, kernel), bias may be null

struct ConvArgs {
  const float *x, *w, *bias;
  float* out;
  size_t length, kernel;
};

// ---- weighted sums of rows, for attention and bmm

// Computes out_i += sum_j weights[i, j] * rows_j for i < m, over `count` rows of `width` values.
struct WeightedSums {
  const float* weights;
  size_t weights_stride, m;
  const float* rows;
  size_t rows_stride, count;
  float* out;
  size_t out_stride, width;
};

// ---- attention

// Keys are summed in blocks that begin at multiples of kKeyBlock, whatever the query, and the sums
// of blocks are joined in order. So every query has the same bits alone and in a batch, and threads
// can share the keys of one head. The size is a multiple of every tile width.
constexpr size_t kKeyBlock = 96;
// A task reads the keys of this many heads in turn, because they lie side by side.
constexpr size_t kTurnHeads = 8;
// For up to this many rows of queries the keys are split among tasks, because reading them takes
// the time.
constexpr size_t kFewQueryRows = 16;

// The memory of a kv head: its queries (rows, padded_dim) and, for each block of keys that is being
// computed, the sums (rows, padded_dim), scores (rows, kKeyBlock), maximum and total of each row.
struct SdpaArgs {
  size_t batch, t, heads, kv_heads, dim, context;
  const float* query;
  StoredRows key, value;
  const float* mask;
  bool causal;
  size_t start_pos;
  float scale;
  float* out;
  size_t block;   // number of queries of a task
  size_t blocks;  // number of blocks of queries

  size_t group() const { return heads / kv_heads; }
  size_t rows() const { return block * group(); }
  size_t padded_dim() const { return round_up(dim, kMaxLanes); }
  size_t query_values() const { return rows() * padded_dim(); }
  size_t block_values() const {
    return round_up(rows() * (padded_dim() + kKeyBlock + 2), kMaxLanes);
  }
  // Returns the number of keys that the first `queries` queries see.
  size_t seen(size_t queries) const {
    if (!causal || mask != nullptr) return context;
    const size_t n = start_pos + queries;
    return n < context ? n : context;
  }
  // Returns the number of blocks of keys that a block of queries sees, at least 1.
  size_t key_blocks(size_t block_index) const {
    const size_t end = (block_index + 1) * block;
    const size_t keys = seen(end < t ? end : t);
    return keys == 0 ? 1 : (keys + kKeyBlock - 1) / kKeyBlock;
  }
};

// The keys [begin, end) that some query of a block sees. `begin` is a multiple of kMaxLanes.
struct SeenKeys {
  size_t begin, end;
};

// A task computes a block of queries of the kv heads [begin, end), counted through the batch.
struct SdpaTask {
  size_t block, begin, end, key_block;
  float* query;        // memory of head `begin`; heads are query_values() apart
  float* sums;         // block_values() values of head `begin`
  size_t sums_stride;  // distance from one head to the next
  SeenKeys keys;       // from the task that loads the queries
};

// ---- gated delta rule

// A task keeps this many values of a state row.
constexpr size_t kStateCols = 64;

struct DeltaRuleArgs {
  size_t t, key_dim, value_dim, queries;
  bool decay_per_key;
  const float *query, *key, *value, *decay, *beta, *initial_state;
  float *out, *final_state;
};

// ---- in double precision

// Computes columns [0, columns) of out[m, stride]: the rows of `x` [m,k] times a panel [k, kPanel].
struct PanelProduct {
  const double *x, *panel;
  double* out;
  size_t m, k, columns, stride;
};
constexpr size_t kPanel = 16;
constexpr size_t kPanelDepth = 512;  // a panel of this depth stays in the second cache

}  // namespace ferry::kernels
