// strided_copy: copies elements between memory of any strides. permute, slice, cat, expand and
// others are made of it.
#pragma once

#include "core/thread_pool.h"
#include "kernels/tensor.h"

namespace ferry::kernels {

// One side of a copy; strides in elements, any sign, 0 repeats.
struct Strided {
  const std::byte* data;
  Dims strides;
};

// to[i] = from[i] for every index i of `sizes`; both sides inside their memory, and apart.
void strided_copy(ThreadPool& pool, const Dims& sizes, int64_t element_bytes, const Strided& from,
                  const Strided& to);

// A tensor's memory, `skip` elements in, with its own strides or those given.
Strided strided(const Tensor& tensor, int64_t skip = 0);
Strided strided(const Tensor& tensor, int64_t skip, const Dims& strides);
// `tensor`'s strides as seen from `sizes`, to which it broadcasts.
Dims expanded_strides(const Dims& tensor, const Dims& sizes);

// out = from broadcast to the shape of `out`; same dtype.
void copy_expanded(ThreadPool& pool, const Tensor& from, Tensor& out);
// bytes of `from` to `out`, which has as many.
void copy_bytes(const Tensor& from, Tensor& out);

}  // namespace ferry::kernels
