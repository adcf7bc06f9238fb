// A product with blocks of GGUF files, in memory that the kernels share.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/block_linear.h"

namespace ferry::kernels {

// Up to this many rows of activations are few: each row of the matrix is read once for all of them.
constexpr size_t kFewBlockRows = 4;

// Rows of activations, rounded to 8 bits. Columns are padded to whole chunks of 256, and the padded
// groups have scales of 0. A `slot` has the codes, then for each chunk 5 times 8 numbers: the scale
// of each group, scale times the sum of the codes of the group, of its first half, of its second
// half, and the sum of the codes of the group as i32.
struct BlockActivations {
  std::byte* slots = nullptr;
  size_t rows = 0, columns = 0;

  static constexpr size_t kNumbers = 5 * 8, kCodeSums = 4 * 8;
  size_t chunks() const { return (columns + 255) / 256; }
  size_t slot_bytes() const { return chunks() * (256 + kNumbers * sizeof(float)); }
  int8_t* codes(size_t row) const { return reinterpret_cast<int8_t*>(slots + row * slot_bytes()); }
  float* numbers(size_t row) const { return reinterpret_cast<float*>(codes(row) + chunks() * 256); }
};

struct BlockProduct {
  BlockMatrix matrix;
  BlockActivations x;
  float* out = nullptr;

  const uint8_t* row(size_t n) const {
    return reinterpret_cast<const uint8_t*>(matrix.blocks) +
           n * static_cast<size_t>(matrix.row_bytes());
  }
};

// For processors of x86 with AVX-512 and VNNI. The first returns the bytes of scratch memory that
// the second needs, which computes rows [begin, end) of the matrix.
size_t block_scratch_vnni(size_t m, size_t columns);
void block_task_vnni(const BlockProduct& p, size_t begin, size_t end, float* scratch);

}  // namespace ferry::kernels
