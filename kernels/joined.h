// Products with a matrix in two pieces: a cache, in whatever dtype it is stored, and what follows
// it. A product that reads the cache where it is needs no copy of it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/dtype.h"
#include "core/result.h"
#include "core/thread_pool.h"
#include "kernels/call.h"

namespace ferry::kernels {

// A batch of matrices [k,n], each joined from two pieces along its columns or its rows.
struct JoinedMatrix {
  DType dtype;         // of `first`: f32, f16, bf16, or u8, u16 for (code - zero_point) * scale
  const void* first;   // [batch,k,count] or [batch,count,n]
  float scale;         // of codes
  int32_t zero_point;  // of codes
  bool columns;        // joined along the columns
  size_t count;        // columns or rows of `first`
  const float* whole;  // [batch,k,n]; where `first` is, nothing is read
};

// out[batch,m,n] = a[batch,m,k] * b in f32, with the bits that bmm_f32 gives for the joined matrix.
struct JoinedProduct {
  const float* a;
  JoinedMatrix b;
  float* out;
  size_t batch, m, n, k;
};
// So many rows share tiles of b that stay in the cache; fewer read b where it is.
inline constexpr size_t kJoinedManyRows = 17;
inline constexpr size_t kJoinedTileRows = 128;
inline constexpr size_t kJoinedTileCols = 64;
void joined_bmm_f32(const JoinedProduct& product, ThreadPool& pool);

// bmm where part of mat2 is elsewhere: self, mat2 -> out, then first, its element at which to
// begin, scale, zero_point, whether it is columns, their count. All tensors are static, their
// shapes fit, and all but `first` are f32. No operator of programs.
Status joined_bmm(const Call& call);

}  // namespace ferry::kernels
