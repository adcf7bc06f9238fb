// Unpacks 16 rows of blocks of GGUF files into a tile, for products with many rows of activations.

// clang-format off
#if defined(FERRY_BLOCK_TILE_FILL_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FERRY_BLOCK_TILE_FILL_INL_H_
#undef FERRY_BLOCK_TILE_FILL_INL_H_
#else
#define FERRY_BLOCK_TILE_FILL_INL_H_
#endif
// clang-format on

#include "kernels/block_products-inl.h"
#include "kernels/block_tile_vectors-inl.h"
#include "kernels/transpose_avx2.h"

FERRY_BLOCK_BEFORE();
namespace ferry::kernels {
namespace FERRY_BLOCK_NAMESPACE {

#if FERRY_BLOCK_TILES

#if FERRY_BLOCK_NEON
template <class T>
HWY_INLINE void put_chunk(const BlockChunk& c, const BlockTile& t, size_t first_group,
                          size_t groups, size_t row) {
  HWY_ALIGN float offsets[2][kChunkGroups];
  if constexpr (!T::kSigned) chunk_offsets<T>(c, offsets);
  constexpr size_t kHalfCount = T::kHalves ? 2 : 1;
  for (size_t g = 0; g < groups; ++g) {
    const uint8_t* codes = c.codes + kGroupColumns * g;
    const size_t at = first_group + g;
    std::byte* to = t.codes + at * kGroupColumns * kTileRows + sizeof(Run) * row;
    for (size_t i = 0; i < kGroupColumns; i += sizeof(Run), to += sizeof(Run) * kTileRows) {
      std::memcpy(to, codes + i, sizeof(Run));
    }
    t.scales[at * kTileRows + row] = c.scale[g];
    if constexpr (T::kSigned) continue;
    for (size_t h = 0; h < kHalfCount; ++h) {
      t.offsets[(at * kHalfCount + h) * kTileRows + row] = offsets[h][g];
      if constexpr (T::kHalves) {
        int16_t* factor = t.factors + ((at * 2 + h) * kTileRows + row) * 2;
        factor[0] = factor[1] = c.half[2 * g + h];
      }
    }
  }
}

template <class T>
void fill_tile(const BlockProduct& p, size_t n, const BlockTile& t) {
  const auto rows = static_cast<size_t>(p.matrix.rows);
  const size_t groups = p.x.columns / kGroupColumns;
  BlockChunk c = {};
  for (size_t r = 0; r < kTileRows; ++r) {
    RowReader<T> row = {p.row(n + r < rows ? n + r : rows - 1), p.x.columns / T::kElements};
    for (size_t g = 0; g < groups; g += kChunkGroups) {
      row.next(c);
      const size_t left = groups - g;
      put_chunk<T>(c, t, g, left < kChunkGroups ? left : kChunkGroups, r);
    }
  }
}
#else
// The rows that are put into a tile at once: a vector holds 4 codes, or one number, of each.
constexpr size_t kPutRows = 8;

// Loads 8 numbers of 32 bits at `p`, at p + stride, and so on: vector i of the result has number i
// of each row.
HWY_INLINE void load_transposed(const void* p, size_t stride, __m256i (&out)[8]) {
  const auto* bytes = static_cast<const std::byte*>(p);
  for (size_t i = 0; i < 8; ++i) {
    out[i] = _mm256_load_si256(reinterpret_cast<const __m256i*>(bytes + i * stride));
  }
  transpose(out);
}

HWY_INLINE void store_ints(void* p, __m256i v) { _mm256_storeu_si256(static_cast<__m256i*>(p), v); }

// Puts the first `groups` groups of a chunk of 8 rows into a tile, whose first row is `row`.
template <class T>
HWY_INLINE void put_chunks(const BlockChunk (&chunks)[kPutRows], const BlockTile& t,
                           size_t first_group, size_t groups, size_t row) {
  constexpr size_t kHalfCount = T::kHalves ? 2 : 1;
  HWY_ALIGN float offsets[kPutRows][2][kChunkGroups];
  if constexpr (!T::kSigned) {
    for (size_t r = 0; r < kPutRows; ++r) chunk_offsets<T>(chunks[r], offsets[r]);
  }
  const __m256i signs = _mm256_set1_epi32(static_cast<int>(kShiftedSigns));
  for (size_t g = 0; g < groups; ++g) {
    __m256i runs[8];
    load_transposed(chunks[0].codes + kGroupColumns * g, sizeof(BlockChunk), runs);
    std::byte* to = t.codes + (first_group + g) * kGroupColumns * kTileRows + sizeof(Run) * row;
    for (size_t i = 0; i < 8; ++i, to += sizeof(Run) * kTileRows) {
      store_ints(to, T::kSigned && kShiftedSigns != 0 ? _mm256_xor_si256(runs[i], signs) : runs[i]);
    }
  }
  __m256i numbers[8];
  load_transposed(chunks[0].scale, sizeof(BlockChunk), numbers);
  for (size_t g = 0; g < groups; ++g) {
    store_ints(t.scales + (first_group + g) * kTileRows + row, numbers[g]);
  }
  if constexpr (T::kSigned) return;
  for (size_t h = 0; h < kHalfCount; ++h) {
    load_transposed(offsets[0][h], sizeof offsets[0], numbers);
    for (size_t g = 0; g < groups; ++g) {
      store_ints(t.offsets + ((first_group + g) * kHalfCount + h) * kTileRows + row, numbers[g]);
    }
  }
  if constexpr (!T::kHalves) return;
  // A number has the scales of both halves of a group.
  load_transposed(chunks[0].half, sizeof(BlockChunk), numbers);
  const __m256i low = _mm256_set1_epi32(0xffff);
  for (size_t g = 0; g < groups; ++g) {
    int16_t* factor = t.factors + ((first_group + g) * 2 * kTileRows + row) * 2;
    const __m256i v = numbers[g];
    store_ints(factor, _mm256_or_si256(_mm256_and_si256(v, low), _mm256_slli_epi32(v, 16)));
    store_ints(factor + 2 * kTileRows,
               _mm256_or_si256(_mm256_srli_epi32(v, 16), _mm256_andnot_si256(low, v)));
  }
}

#if FERRY_BLOCK_VNNI == 512
// fill_tile() for a tile without rows behind the end of the matrix.
template <class T>
void fill_whole_tile(const BlockProduct& p, size_t n, const BlockTile& t, FetchDistance next_tile) {
  constexpr size_t kGroups = T::kElements / kGroupColumns;
  const size_t groups = p.x.columns / kGroupColumns;
  BlockOfRows block = {p.row(n), static_cast<size_t>(p.matrix.row_bytes())};
  const uint8_t* fetched = block.first;
  for (size_t g = 0; g < groups; g += kGroups, block.first += T::kBytes) {
    fetch(fetched, next_tile, kTileRows * T::kBytes);
    fetched += kTileRows * T::kBytes;
    RowsOf<T>::put(block, t, g);
  }
}
#endif

// Fetches the rows of the next tile.
template <class T>
void fill_tile(const BlockProduct& p, size_t n, const BlockTile& t) {
  const auto rows = static_cast<size_t>(p.matrix.rows);
  const size_t groups = p.x.columns / kGroupColumns;
  const FetchDistance next_tile = {kTileRows * static_cast<size_t>(p.matrix.row_bytes()),
                                   fetch_ahead(p.x.rows).stream.into_second};
#if FERRY_BLOCK_VNNI == 512
  if constexpr (RowsOf<T>::kAtOnce) {
    if (n + kTileRows <= rows) return fill_whole_tile<T>(p, n, t, next_tile);
  }
#endif
  BlockChunk chunks[kPutRows];
  for (size_t r = 0; r < kTileRows; r += kPutRows) {
    RowReader<T> readers[kPutRows];
    for (size_t i = 0; i < kPutRows; ++i) {
      const size_t row = n + r + i;
      readers[i] = {p.row(row < rows ? row : rows - 1), p.x.columns / T::kElements};
    }
    for (size_t g = 0; g < groups; g += kChunkGroups) {
      for (size_t i = 0; i < kPutRows; ++i) {
        fetch(readers[i].p, next_tile, RowReader<T>::kPerChunk * T::kBytes);
        readers[i].next(chunks[i]);
      }
      const size_t left = groups - g;
      put_chunks<T>(chunks, t, g, left < kChunkGroups ? left : kChunkGroups, r);
    }
  }
}
#endif  // FERRY_BLOCK_NEON

#endif  // FERRY_BLOCK_TILES

}  // namespace FERRY_BLOCK_NAMESPACE
}  // namespace ferry::kernels
FERRY_BLOCK_AFTER();

#endif  // FERRY_BLOCK_TILE_FILL_INL_H_
