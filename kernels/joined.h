// Products with a matrix in two pieces: a cache in its stored dtype, and the new columns or rows
// after it. A product that reads the cache in place needs no copy of it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/dtype.h"
#include "core/result.h"
#include "core/thread_pool.h"
#include "kernels/kernel_table.h"

namespace ferry::kernels {

// A batch of matrices [k,n], each joined from two pieces along its columns or its rows.
struct JoinedMatrix {
  DType dtype;  // dtype of `first`: f32, f16, bf16, or u8, u16 for (code - zero_point) * scale
  const void* first;   // [batch,k,count] or [batch,count,n]
  float scale;         // scale of codes
  int32_t zero_point;  // zero point of codes
  bool columns;        // whether the pieces are joined along the columns
  size_t count;        // columns or rows of `first`
  const float* whole;  // [batch,k,n]; the part of `first` is not read
};

// Computes out[batch,m,n] = a[batch,m,k] * b in f32, with the bits of bmm_f32 for the joined
// matrix.
struct JoinedProduct {
  const float* a;
  JoinedMatrix b;
  float* out;
  size_t batch, m, n, k;
};
// From this many rows on, rows share tiles of b that stay in the cache. Fewer rows read b in place.
inline constexpr size_t kJoinedManyRows = 17;
inline constexpr size_t kJoinedTileRows = 128;
inline constexpr size_t kJoinedTileCols = 64;
void joined_bmm_f32(const JoinedProduct& product, ThreadPool& pool);

// Computes bmm for a mat2 whose first part is elsewhere. Arguments: self, mat2 -> out, then
// `first`, the index of its first element, scale, zero_point, whether columns are joined, their
// count. All tensors are static, their shapes fit, and all but `first` are f32. Programs cannot
// contain this operator.
Status joined_bmm(const Call& call);

}  // namespace ferry::kernels
