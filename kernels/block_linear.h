// Products with matrices in the blocks of GGUF files, as they are stored. The functions work on raw
// memory; callers check shapes.
//
// A row of activations is rounded to 8 bits, with one scale for each 32 columns. For each of these
// groups the sum of products of codes is an exact integer. As f32 it is multiplied with both scales
// and added to one of 8 partial sums: group g to sum g % 8, by fused multiply-add. So results
// depend neither on the number of threads nor on the instruction set, and a row of a batch has the
// bits that it has alone. Source of the layouts: llama.cpp, ggml-common.h and ggml-quants.c.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "core/thread_pool.h"

namespace ferry::kernels {

enum class BlockType : uint8_t {
  kQ4_0,
  kQ4_1,
  kQ5_0,
  kQ5_1,
  kQ8_0,
  kQ2K,
  kQ3K,
  kQ4K,
  kQ5K,
  kQ6K,
  kIQ4NL,
  kIQ4XS,
  kMXFP4,
};

struct BlockLayout {
  std::string_view name;  // as in BlockEncoding: "q4_k"
  BlockType type;
  int64_t elements, bytes;  // of a block
};
// Returns nullptr for a type without kernels.
const BlockLayout* find_block_layout(std::string_view name);

// A matrix [rows, columns], row-major with output rows first. Nothing is aligned.
struct BlockMatrix {
  const BlockLayout* layout = nullptr;
  int64_t rows = 0, columns = 0;  // `columns` is a multiple of layout->elements
  const std::byte* blocks = nullptr;

  int64_t row_bytes() const { return columns / layout->elements * layout->bytes; }
};

// One product of a call: out [m, matrix.rows].
struct BlockTask {
  BlockMatrix matrix;
  float* out = nullptr;
};

// Computes out = x [m, columns] * matrix^T for each task, in one parallel region. All matrices have
// as many columns. A row of x with a NaN or an infinity gives NaN.
void block_linear(const float* x, int64_t m, std::span<const BlockTask> tasks, ThreadPool& pool);

// Writes the values of row `row`: [columns].
void block_row(const BlockMatrix& matrix, int64_t row, float* out);

}  // namespace ferry::kernels
