// Keys and values of a cache as codes of 8 or 4 bits, which a runner holds in place of f32.
//
// A row is the key or the value of one head at one position. It is stored like this:
//   1. Each block of `block` values is multiplied by a Hadamard matrix over sqrt(block), which is
//      its own inverse. A few large channels, which keys have, are spread over the block by it
//      (QuaRot, arXiv 2404.00456). Products of a turned query with turned keys are those of the
//      query with the keys.
//   2. Each group of up to 32 values has a scale in f16. 8 bits: the scale is the largest magnitude
//      over 127, codes are -127 to 127. 4 bits: the scale is the value of the largest magnitude,
//      with its sign, over -8, codes are -8 to 7, as in Q4_0 of GGUF.
// A value is scale * code. A group with a value that is not finite becomes NaN; so does one whose
// scale exceeds f16.
//
// Memory: the rows of a head follow each other by position. A row is its codes, then its scales.
// Codes of 4 bits are stored plus 8, two in a byte: byte i of a group has code i in its low half
// and code i + group / 2 in its high half.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/dtype.h"
#include "core/thread_pool.h"

namespace ferry::kernels {

// Refers to the codes of one cache [1,context,heads,dim].
struct CacheCodes {
  std::byte* at = nullptr;
  size_t context = 0, heads = 0, dim = 0;
  int bits = 8;

  // Returns whether rows of `dim` values can be coded: it must be a multiple of 4.
  static bool takes(int64_t dim) { return dim >= 4 && dim % 4 == 0; }
  // The largest power of two of which dim is a multiple.
  size_t block() const { return dim & (~dim + 1); }
  size_t group() const { return block() < 32 ? block() : 32; }
  size_t code_bytes() const { return dim * static_cast<size_t>(bits) / 8; }
  size_t row_bytes() const { return code_bytes() + dim / group() * sizeof(uint16_t); }
  size_t bytes() const { return heads * context * row_bytes(); }
  std::byte* row(size_t head, size_t position) const {
    return at + (head * context + position) * row_bytes();
  }
};

// Codes rows [count,heads,dim] of f32, f16 or bf16 as positions [position, position + count).
void store_codes(const CacheCodes& to, size_t position, DType dtype, const void* rows, size_t count,
                 ThreadPool& pool);
// Computes the values of positions [position, position + count) as rows [count,heads,dim] of f32.
void load_codes(const CacheCodes& from, size_t position, size_t count, float* rows,
                ThreadPool& pool);
// Multiplies each of `count` rows of `dim` values by the matrix of step 1.
void turn_rows(size_t dim, size_t count, float* rows, ThreadPool& pool);

}  // namespace ferry::kernels
