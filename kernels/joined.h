// Products with a matrix in two pieces: a cache in its stored dtype, and the new columns or rows
// after it. A product that reads both in place needs no copy of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/dtype.h"
#include "core/result.h"
#include "core/thread_pool.h"
#include "kernels/kernel_table.h"
#include "kernels/seen_columns.h"

namespace ferry::kernels {

// A batch of matrices [k,n], each joined from two pieces along its columns or its rows.
struct JoinedMatrix {
  DType dtype;  // dtype of `first`: f32, f16, bf16, or u8, u16 for (code - zero_point) * scale
  const void* first;    // [batch,k,count] or [batch,count,n], with these distances:
  float scale;          // scale of codes
  int32_t zero_point;   // zero point of codes
  bool columns;         // whether the pieces are joined along the columns
  size_t count;         // columns or rows of `first`
  size_t stored;        // those of them in memory; attention takes the others, its last ones, as 0
  size_t first_stride;  // elements from a row of `first` to the next one
  size_t first_item;    // elements from a matrix of `first` to the next one
  const float* rest;    // the other columns or rows
  size_t rest_stride;   // elements from a row of `rest` to the next one
  size_t rest_item;     // elements from a matrix of `rest` to the next one
};

// Computes out[batch,m,n] = a[batch,m,k] * b in f32, with the bits of bmm_f32 for the joined
// matrix.
struct JoinedProduct {
  const float* a;
  JoinedMatrix b;
  float* out;
  size_t batch, m, n, k;
  // The part of the joined dimension that is used: other columns of out are not computed, or other
  // rows of b are left out, as if a had zeros for them. Empty: all of it.
  std::span<const ColumnRange> seen = {};
};
// From this many rows on, rows share tiles of b that stay in the cache. Fewer rows read b in place.
inline constexpr size_t kJoinedManyRows = 17;
inline constexpr size_t kJoinedTileRows = 128;
inline constexpr size_t kJoinedTileCols = 64;
void joined_bmm_f32(const JoinedProduct& product, ThreadPool& pool);

// Computes bmm for a mat2 whose first part is elsewhere. Arguments: self, mat2 -> out, then
// `first`, the index of its first element, scale, zero_point, whether columns are joined, their
// count, and the rest as a tensor; without one it is that part of mat2. The last one is how many
// columns `first` has in memory; 0: their count. All tensors are static, their shapes fit, and all
// but `first` are f32. Programs cannot contain this operator. Optional
// arguments: a mask, and its SeenMask, whose fine columns are JoinedProduct::seen.
Status joined_bmm(const Call& call);

// Attention: out = softmax(query keys + mask) values, with the bits of joined_bmm_f32, the sum,
// softmax_row_f32 and joined_bmm_f32. Many rows keep a few rows of scores in the cache; fewer
// than kJoinedManyRows rows of an item read keys and values in place.
struct MaskedAttention {
  const float* query;   // [batch,groups,tokens,dim]
  JoinedMatrix keys;    // [batch,dim,context], joined along the columns
  JoinedMatrix values;  // [batch,context,value_dim], joined along the rows; dtype as keys
  const float* mask;    // [tokens,context]
  std::span<const SeenColumns> seen;  // of each block of rows of the mask
  float* out;                         // [batch,groups,tokens,value_dim]
  size_t batch, groups, tokens, dim, value_dim, context;
};
// A task of masked_attention_f32: one block of rows of one head, and the columns that it sees.
// Scores of seen columns lie side by side, where the softmax has the bits of the whole row: hidden
// columns add 0 to its sums.
struct AttentionBlock {
  const MaskedAttention& args;
  std::span<const ColumnRange> seen;
  size_t item;        // of the batch
  size_t row, count;  // rows of `item`
  size_t token;       // row of the mask
  size_t width;       // seen columns
  float* scores;      // [count,width]

  JoinedProduct keys() const {
    return {args.query, args.keys, nullptr, args.batch, count, args.context, args.dim};
  }
  JoinedProduct values() const {
    return {nullptr, args.values, nullptr, args.batch, count, args.value_dim, args.context};
  }
  size_t query_row() const { return item * args.groups * args.tokens + row; }
};

// All rows of one item, of which there are few, and the columns that they see. The scores of
// `seen.steps` lie side by side.
struct FewRowsAttention {
  const MaskedAttention& args;
  const SeenColumns& seen;
  size_t item;    // of the batch
  size_t rows;    // groups * tokens
  size_t width;   // columns of seen.steps
  float* scores;  // [rows,width]

  JoinedProduct keys() const {
    return {args.query, args.keys, nullptr, args.batch, rows, args.context, args.dim};
  }
  JoinedProduct values() const {
    return {nullptr, args.values, nullptr, args.batch, rows, args.value_dim, args.context};
  }
};

void masked_attention_f32(const MaskedAttention& attention, ThreadPool& pool);

// Computes attention of two calls of joined_bmm. Arguments: the first ten of the product of
// queries and keys, those of the product of weights and values, the mask, its SeenMask. The
// results of the first product serve as memory if `out` lies over the queries, keys or mask.
// Programs cannot contain this operator. Where caches have fewer columns in memory than their
// count, the others are 0.
Status masked_attention(const Call& call);

}  // namespace ferry::kernels
