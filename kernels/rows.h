// Rows views a tensor as rows along the dimensions that an operator reduces or normalises.
#pragma once

#include <vector>

#include "kernels/kernel.h"
#include "kernels/strided_copy.h"

namespace ferry::kernels {

// `count` contiguous rows of `length` elements of a tensor. Refers to the tensor's memory if these
// dimensions are already the last ones, and otherwise to `copy`.
struct Rows {
  const std::byte* data = nullptr;
  int64_t count = 1;
  int64_t length = 1;
  std::vector<std::byte> copy;
};

// Bit d of `along` is set for each dimension d that rows run along, in their order.
Rows as_rows(const Call& call, const Tensor& tensor, uint32_t along);
// Returns the dimension order of as_rows(): the other dimensions, then those of `along`.
Dims row_order(int rank, uint32_t along);

// Returns the sum of a row in f32, as sum.out and mean.out add it.
double sum_of_row(const float* row, int64_t length);

// Returns how many rows one item of a parallel loop computes.
inline int64_t rows_per_piece(int64_t length) {
  return std::max<int64_t>(1, 32768 / std::max<int64_t>(1, length));
}

}  // namespace ferry::kernels
