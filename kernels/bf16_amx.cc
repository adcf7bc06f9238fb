// Tiles of AMX. A tile of w has 16 columns of out as its rows, which lie in memory as the
// instruction takes them; x is packed once for each product. Every sum is made in the order of k.
#include "kernels/bf16_linear.h"

#if defined(__x86_64__)
#include <immintrin.h>

#include <cstring>

#include "core/dtype.h"

#ifdef __clang__
#pragma clang attribute push(__attribute__((target("amx-tile,amx-bf16"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("amx-tile,amx-bf16")
#endif

namespace ferry::kernels {
namespace {

// The memory that LDTILECFG reads: all tiles have 16 rows of 64 bytes.
struct alignas(64) TileConfig {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};
static_assert(sizeof(TileConfig) == 64);

// Intrinsics of tiles do not tell GCC 12 which memory they read and write. This keeps the compiler
// from moving or dropping other accesses to `p` across it.
inline void settle(const void* p) { asm volatile("" : : "r"(p) : "memory"); }

// 16 columns of out: rows of w, or a copy that is filled with zeros where w ends.
struct Strip {
  const uint16_t* at;
  size_t stride;  // in values
};

Strip strip_at(const Bf16Product& p, size_t column, size_t c, uint16_t* copy) {
  const size_t rows = p.n - column < kTileSide ? p.n - column : kTileSide;
  const size_t depth = p.k - c < kTileDepth ? p.k - c : kTileDepth;
  if (column >= p.n) {
    std::memset(copy, 0, kTileValues * sizeof(uint16_t));
    return {copy, kTileDepth};
  }
  const uint16_t* w = p.w + column * p.k + c;
  if (rows == kTileSide && depth == kTileDepth) return {w, p.k};
  std::memset(copy, 0, kTileValues * sizeof(uint16_t));
  for (size_t r = 0; r < rows; ++r) {
    std::memcpy(copy + r * kTileDepth, w + r * p.k, depth * sizeof(uint16_t));
  }
  return {copy, kTileDepth};
}

// Fetches the bytes that the tiles of w after the next few read: 32 rows are more streams than the
// processor follows by itself. Addresses behind a row are those of the next one; those behind the
// matrix are ignored.
inline void fetch_ahead_of(const Bf16Product& p, size_t column, size_t c) {
  constexpr size_t kAhead = 8 * kTileDepth;
  const uint16_t* w = p.w + column * p.k + c;
  for (size_t r = 0; r < 2 * kTileSide; ++r) {
    const auto at = reinterpret_cast<uintptr_t>(w) + (r * p.k + kAhead) * sizeof(uint16_t);
    __builtin_prefetch(reinterpret_cast<const void*>(at));
  }
}

// Writes a tile of sums [column,row].
void write_out(const Bf16Product& p, const float* sums, size_t row, size_t column, size_t end) {
  const size_t rows = p.m - row < kTileSide ? p.m - row : kTileSide;
  const size_t columns = end - column < kTileSide ? end - column : kTileSide;
  for (size_t r = 0; r < rows; ++r) {
    uint16_t* out = p.out + (row + r) * p.n + column;
    for (size_t c = 0; c < columns; ++c) out[c] = f32_to_bf16(sums[c * kTileSide + r]);
  }
}

// Computes 32 columns of out from `column` for the rows of two blocks, or of one.
template <bool kTwo>
void product_of_tiles(const Bf16Product& p, const uint16_t* packed, size_t block, size_t column,
                      size_t end) {
  const size_t tiles = tiles_along(p.k, kTileDepth);
  const uint16_t* x = packed + block * tiles * kTileValues;
  const uint16_t* next = x + tiles * kTileValues;
  alignas(64) uint16_t copies[2][kTileValues];
  _tile_zero(0);
  _tile_zero(1);
  if constexpr (kTwo) {
    _tile_zero(2);
    _tile_zero(3);
  }
  for (size_t t = 0; t < tiles; ++t) {
    if (block == 0) fetch_ahead_of(p, column, t * kTileDepth);
    const Strip first = strip_at(p, column, t * kTileDepth, copies[0]);
    const Strip second = strip_at(p, column + kTileSide, t * kTileDepth, copies[1]);
    settle(copies);
    _tile_loadd(4, first.at, first.stride * sizeof(uint16_t));
    _tile_loadd(5, second.at, second.stride * sizeof(uint16_t));
    _tile_loadd(6, x + t * kTileValues, 64);
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 5, 6);
    if constexpr (kTwo) {
      _tile_loadd(7, next + t * kTileValues, 64);
      _tile_dpbf16ps(2, 4, 7);
      _tile_dpbf16ps(3, 5, 7);
    }
  }
  alignas(64) float sums[4][kTileSide * kTileSide];
  _tile_stored(0, sums[0], 64);
  _tile_stored(1, sums[1], 64);
  if constexpr (kTwo) {
    _tile_stored(2, sums[2], 64);
    _tile_stored(3, sums[3], 64);
  }
  settle(sums);
  for (size_t i = 0; i < (kTwo ? 4 : 2); ++i) {
    const size_t at = column + i % 2 * kTileSide;
    if (at < end) write_out(p, sums[i], (block + i / 2) * kTileSide, at, end);
  }
}

}  // namespace

void bf16_columns_amx(const Bf16Product& p, const uint16_t* packed, size_t begin, size_t end) {
  const TileConfig config;
  settle(&config);
  _tile_loadconfig(&config);
  settle(packed);
  const size_t blocks = tiles_along(p.m, kTileSide);
  for (size_t column = begin; column < end; column += 2 * kTileSide) {
    size_t block = 0;
    for (; block + 2 <= blocks; block += 2) {
      product_of_tiles<true>(p, packed, block, column, end);
    }
    if (block < blocks) product_of_tiles<false>(p, packed, block, column, end);
  }
  _tile_release();
}

}  // namespace ferry::kernels

#ifdef __clang__
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

#endif  // __x86_64__
