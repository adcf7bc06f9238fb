// strided_copy() copies elements between memory of any strides. permute, slice, cat, expand and
// other operators use it.
#pragma once

#include "core/thread_pool.h"
#include "kernels/tensor.h"

namespace ferry::kernels {

// One side of a copy. Strides are in elements with any sign, and 0 repeats.
struct Strided {
  const std::byte* data;
  Dims strides;
};

// Computes to[i] = from[i] for every index i of `sizes`. Both sides lie inside their memory and do
// not overlap.
void strided_copy(ThreadPool& pool, const Dims& sizes, int64_t element_bytes, const Strided& from,
                  const Strided& to);

// Returns a tensor's memory from element `skip` on, with the tensor's strides or the given ones.
Strided strided(const Tensor& tensor, int64_t skip = 0);
Strided strided(const Tensor& tensor, int64_t skip, const Dims& strides);
// Returns the strides of `tensor` in the dimensions of `sizes`, to which it broadcasts.
Dims expanded_strides(const Dims& tensor, const Dims& sizes);

// Broadcasts `from` to the shape of `out`, which has its dtype.
void copy_expanded(ThreadPool& pool, const Tensor& from, Tensor& out);
// Copies the bytes of `from` to `out`, which has equally many.
void copy_bytes(const Tensor& from, Tensor& out);

}  // namespace ferry::kernels
