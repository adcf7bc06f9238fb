// linear() of bf16 by the processor's own products of bf16. Products of two bf16 numbers are exact
// in f32, so only the order of sums differs from other instruction sets. Sums are f32; numbers
// below the normal range count as zero, as these instructions state, and those of Arm round sums to
// odd. Every output is summed in an
// order that depends on k only, so a row of a batch has the bits that it has alone.
// Source: Intel, Architecture Instruction Set Extensions Programming Reference (VDPBF16PS,
// TDPBF16PS).
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/thread_pool.h"

namespace ferry::kernels {

// out[m,n] = x[m,k] w[n,k], all of them bf16; out is rounded to nearest even. Only rows of x may
// have gaps.
struct Bf16Product {
  const uint16_t* x;
  const uint16_t* w;
  uint16_t* out;
  size_t m, n, k;
  size_t x_stride = 0;  // values from one row of x to the next; 0: k

  const uint16_t* x_row(size_t i) const { return x + i * x_apart(); }
  size_t x_apart() const { return x_stride == 0 ? k : x_stride; }
};

// While an object exists, linear() of bf16 on its thread uses these instructions, or computes in
// f32. Without an object it computes in f32.
class Bf16Choice {
 public:
  explicit Bf16Choice(bool use_instructions);
  ~Bf16Choice();
  Bf16Choice(const Bf16Choice&) = delete;
  Bf16Choice& operator=(const Bf16Choice&) = delete;

  static bool uses_instructions();

 private:
  bool before_;
};

enum class Bf16Instructions { kNone, kAvx512, kAmx, kNeon };

// Returns the fastest of this processor, or kNone where none is faster than f32.
Bf16Instructions bf16_instructions();
// `use` is not kNone, and the processor has it. No size is zero.
void bf16_linear(const Bf16Product& product, Bf16Instructions use, ThreadPool& pool);

// Each computes columns [begin, end) of out. Only that of AVX-512 takes rows of x with gaps.
void bf16_columns_avx512(const Bf16Product& product, size_t begin, size_t end);
// `packed` are the rows of x as pack_for_tiles() writes them.
void bf16_columns_amx(const Bf16Product& product, const uint16_t* packed, size_t begin, size_t end);
// `packed` are the rows of x as pack_pair() writes them.
void bf16_columns_neon(const Bf16Product& product, const uint16_t* packed, size_t begin,
                       size_t end);

// A tile of x has 16 rows and 32 columns: for each pair of columns, that pair of every row. Tiles
// follow each other along k, then along m, and are filled with zeros.
inline constexpr size_t kTileSide = 16, kTileDepth = 32;
inline constexpr size_t kTileValues = kTileSide * kTileDepth;
inline size_t tiles_along(size_t size, size_t side) { return (size + side - 1) / side; }
// Writes the tiles of rows [16 block, 16 block + 16).
void pack_for_tiles(const Bf16Product& product, size_t block, uint16_t* packed);

// Returns the distance of rows of x, in values, with which products by AVX-512 are fastest. Lines
// that are 4,096 bytes apart share eight places of the first cache, and a tile reads ten rows: with
// gaps a product of 512 rows is 1.3 times as fast for 2,048 columns, and 1.8 times for 4,096.
inline size_t spaced_row(size_t k) { return k % 2048 == 0 ? k + 32 : k; }

// Writes rows 2 pair and 2 pair + 1 of x: 4 values of the first, 4 of the second, and so on, with
// zeros where x ends. Pairs follow each other.
void pack_pair(const Bf16Product& product, size_t pair, uint16_t* packed);

}  // namespace ferry::kernels
