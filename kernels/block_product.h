// A product with blocks of GGUF files, in memory that the kernels share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/thread_pool.h"
#include "kernels/block_linear.h"
#include "kernels/processor.h"

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

// Code for instructions that Highway does not choose between. `scratch` returns the bytes of
// scratch memory that `task` needs, which computes rows [begin, end) of the matrix. All give the
// same bits.
struct BlockSet {
  const char* name;
  size_t (*scratch)(size_t m, size_t columns);
  void (*task)(const BlockProduct& p, size_t begin, size_t end, float* scratch);
};

// Returns the sets that are compiled in and that this processor has, the fastest first.
std::span<const BlockSet* const> block_sets();

// block_linear() with a given set, or with the code that Highway chooses if `set` is null, for
// tests.
void block_linear_with(const BlockSet* set, const float* x, int64_t m,
                       std::span<const BlockTask> tasks, ThreadPool& pool);

// The sets, each in a file of its own.
#if defined(__x86_64__)
const BlockSet& block_vnni();
const BlockSet& block_avx_vnni();
#endif
#if FERRY_NEON_DOT
const BlockSet& block_neon_dot();
#endif
#if FERRY_NEON_I8MM
const BlockSet& block_neon_i8mm();
#endif

}  // namespace ferry::kernels
