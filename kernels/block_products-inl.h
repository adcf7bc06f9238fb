// The products of blocks of GGUF files with rounded activations. block_linear.cc includes this file
// once per target. With few rows of activations each row of the matrix is unpacked 256 columns at a
// time, and multiplied. With many, 16 rows of the matrix are unpacked into a tile first, which all
// rows of activations share.

// clang-format off
#if defined(FERRY_BLOCK_PRODUCTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FERRY_BLOCK_PRODUCTS_INL_H_
#undef FERRY_BLOCK_PRODUCTS_INL_H_
#else
#define FERRY_BLOCK_PRODUCTS_INL_H_
#endif
// clang-format on

#include <cmath>

#include "kernels/block_types-inl.h"
#include "kernels/fetch_ahead.h"

HWY_BEFORE_NAMESPACE();
namespace ferry::kernels {
namespace HWY_NAMESPACE {

// Whether products with many rows have kernels of their own.
#undef FERRY_BLOCK_TILES
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2
#define FERRY_BLOCK_TILES 1
#else
#define FERRY_BLOCK_TILES 0
#endif
// Targets without an instruction for it call the library, so that all give the same bits.
template <class V>
HWY_INLINE V fused(V a, V b, V c) {
#if HWY_TARGET == HWY_SCALAR
  return V(std::fma(a.raw, b.raw, c.raw));
#else
  return hn::MulAdd(a, b, c);
#endif
}

constexpr size_t kTileRows = 16, kTileVectors = 2;  // 8 rows in a vector

using F8 = hn::CappedTag<float, 8>;
constexpr size_t kF8Lanes = hn::MaxLanes(F8());

// ---- few rows of activations

// Computes the sum of products of codes of each of kGroups groups; those of the others are 0. With
// halves, the products of 16 columns are multiplied with the scale of the half.
template <class T, size_t kGroups>
HWY_INLINE void group_sums(const BlockChunk& c, const int8_t* x, int32_t* sums) {
#if FERRY_BLOCK_TILES
  __m256i group[kChunkGroups];
  const __m256i ones = _mm256_set1_epi16(1);
  for (size_t g = 0; g < kChunkGroups; ++g) {
    if (g >= kGroups) {
      group[g] = _mm256_setzero_si256();
      continue;
    }
    const __m256i w = _mm256_load_si256(reinterpret_cast<const __m256i*>(c.codes) + g);
    const __m256i a = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(x) + g);
    const __m256i pairs = T::kSigned
                              ? _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(a, w))
                              : _mm256_maddubs_epi16(w, a);
    __m256i factor = ones;
    if constexpr (T::kHalves) {
      factor = _mm256_set_m128i(_mm_set1_epi16(c.half[2 * g + 1]), _mm_set1_epi16(c.half[2 * g]));
    }
    group[g] = _mm256_madd_epi16(pairs, factor);
  }
  const __m256i low = _mm256_hadd_epi32(_mm256_hadd_epi32(group[0], group[1]),
                                        _mm256_hadd_epi32(group[2], group[3]));
  const __m256i high = _mm256_hadd_epi32(_mm256_hadd_epi32(group[4], group[5]),
                                         _mm256_hadd_epi32(group[6], group[7]));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(sums),
                      _mm256_add_epi32(_mm256_permute2x128_si256(low, high, 0x20),
                                       _mm256_permute2x128_si256(low, high, 0x31)));
#else
  const hn::CappedTag<int16_t, 8> d16;
  const hn::Repartition<int32_t, decltype(d16)> d32;
  const hn::Rebind<int8_t, decltype(d16)> d8;
  const hn::Rebind<uint8_t, decltype(d16)> du8;
  for (size_t g = 0; g < kChunkGroups; ++g) {
    int32_t halves[2] = {0, 0};
    for (size_t h = 0; h < 2 && g < kGroups; ++h) {
      const size_t at = kGroupColumns * g + 16 * h;
      auto sum = hn::Zero(d32), other = hn::Zero(d32);
      for (size_t i = 0; i < 16; i += hn::Lanes(d16)) {
        const auto a = hn::PromoteTo(d16, load_bits(d8, x + at + i));
        const auto codes = load_bits(du8, c.codes + at + i);
        const auto w = T::kSigned ? hn::PromoteTo(d16, hn::BitCast(d8, codes))
                                  : hn::BitCast(d16, hn::PromoteTo(d16, codes));
        sum = hn::ReorderWidenMulAccumulate(d32, w, a, sum, other);
      }
      halves[h] = hn::GetLane(hn::SumOfLanes(d32, hn::Add(sum, other)));
    }
    sums[g] = T::kHalves ? c.half[2 * g] * halves[0] + c.half[2 * g + 1] * halves[1]
                         : halves[0] + halves[1];
  }
#endif
}

// Returns the offsets of the groups of a chunk, or of one half of each.
template <class T>
HWY_INLINE hn::Vec<F8> offsets_at(const BlockChunk& c, size_t half, size_t i) {
  const F8 d;
  auto offset = hn::Zero(d);
  if constexpr (T::kMinima) offset = hn::LoadU(d, c.minimum[half] + i);
  if constexpr (T::kZero != 0) {
    auto scale = hn::LoadU(d, c.scale + i);
    if constexpr (T::kHalves) {
      // The scale of a half is the low or the high part of a pair.
      const hn::Rebind<int32_t, F8> d32;
      auto pair = load_bits(d32, c.half + 2 * i);
      if (half == 0) pair = hn::ShiftLeft<16>(pair);
      scale = hn::Mul(scale, hn::ConvertTo(d, hn::ShiftRight<16>(pair)));
    }
    offset = fused(scale, hn::Set(d, -static_cast<float>(T::kZero)), offset);
  }
  return offset;
}

// The offsets of a chunk in the order of BlockChunk::minimum.
template <class T>
HWY_INLINE void chunk_offsets(const BlockChunk& c, float (&offsets)[2][kChunkGroups]) {
  for (size_t h = 0; h < (T::kHalves ? 2 : 1); ++h) {
    for (size_t i = 0; i < kChunkGroups; i += kF8Lanes) {
      hn::StoreU(offsets_at<T>(c, h, i), F8(), offsets[h] + i);
    }
  }
}

// Adds the products of a chunk with a row of activations to 8 partial sums.
template <class T, size_t kGroups>
HWY_INLINE void add_chunk(const BlockChunk& c, const float (&offsets)[2][kChunkGroups],
                          const int8_t* x, const float* numbers, float* sums) {
  const F8 d;
  const hn::Rebind<int32_t, F8> d32;
  HWY_ALIGN int32_t products[kChunkGroups];
  group_sums<T, kGroups>(c, x, products);
  for (size_t i = 0; i < kChunkGroups; i += kF8Lanes) {
    const auto scale = hn::Mul(hn::LoadU(d, c.scale + i), hn::LoadU(d, numbers + i));
    auto sum = hn::LoadU(d, sums + i);
    sum = fused(hn::ConvertTo(d, hn::LoadU(d32, products + i)), scale, sum);
    if constexpr (!T::kSigned) {
      const float* of_codes = numbers + (T::kHalves ? 16 : 8) + i;
      sum = fused(hn::LoadU(d, offsets[0] + i), hn::LoadU(d, of_codes), sum);
      if constexpr (T::kHalves) {
        sum = fused(hn::LoadU(d, offsets[1] + i), hn::LoadU(d, of_codes + 8), sum);
      }
    }
    hn::StoreU(sum, d, sums + i);
  }
}

HWY_INLINE float total(const float* s) {
  return ((s[0] + s[4]) + (s[2] + s[6])) + ((s[1] + s[5]) + (s[3] + s[7]));
}

// Fetches the cache lines of `bytes` bytes at p + ahead. The address may lie behind the matrix,
// because processors ignore a fetch of unmapped memory.
HWY_INLINE void fetch(const uint8_t* p, size_t ahead, size_t bytes) {
  if (ahead == 0) return;
  const auto from = reinterpret_cast<uintptr_t>(p) + ahead;
  for (size_t i = 0; i < bytes; i += 64) hwy::Prefetch(reinterpret_cast<const void*>(from + i));
}

// The blocks of one row of a matrix, chunk by chunk.
template <class T>
struct RowReader {
  const uint8_t* p;
  size_t blocks;

  static constexpr size_t kPerChunk = kChunkColumns / T::kElements;
  bool has_whole() const { return blocks >= kPerChunk; }
  HWY_INLINE void next_whole(BlockChunk& c) {
    T::unpack(p, Whole<kPerChunk>(), c);
    p += kPerChunk * T::kBytes;
    blocks -= kPerChunk;
  }
  // Unpacks the last blocks, which are no whole chunk.
  HWY_NOINLINE void next_part(BlockChunk& c) {
    std::memset(c.minimum, 0, sizeof c.minimum);
    T::unpack(p, blocks, c);  // other scales become 0
    blocks = 0;
  }
  void next(BlockChunk& c) { has_whole() ? next_whole(c) : next_part(c); }
};

// Adds the products of a row of a matrix with kRows rows of activations to 8 partial sums for each.
template <class T, size_t kRows>
HWY_INLINE void add_row(const BlockProduct& p, RowReader<T> row, size_t first, size_t ahead,
                        float* sums) {
  const int8_t* codes[kRows];
  const float* numbers[kRows];
  for (size_t i = 0; i < kRows; ++i) {
    codes[i] = p.x.codes(first + i);
    numbers[i] = p.x.numbers(first + i);
  }
  HWY_ALIGN BlockChunk c;
  HWY_ALIGN float offsets[2][kChunkGroups];
  const auto add = [&]<size_t kGroups>(Whole<kGroups>) HWY_ATTR {
    chunk_offsets<T>(c, offsets);
    for (size_t i = 0; i < kRows; ++i) {
      add_chunk<T, kGroups>(c, offsets, codes[i], numbers[i], sums + 8 * i);
      codes[i] += kChunkColumns;
      numbers[i] += BlockActivations::kNumbers;
    }
  };
  while (row.has_whole()) {
    fetch(row.p, ahead, RowReader<T>::kPerChunk * T::kBytes);
    row.next_whole(c);
    add(Whole<kChunkGroups>());
  }
  if constexpr (T::kElements == kGroupColumns) {
    const size_t left = row.blocks;
    if (left == 0) return;
    if constexpr (T::kMinima) std::memset(c.minimum, 0, sizeof c.minimum);
    // Rows are often whole heads of 64 columns.
    if (left == 2) {
      T::unpack(row.p, Whole<2>(), c);
      return add(Whole<2>());
    }
    if (left == 4) {
      T::unpack(row.p, Whole<4>(), c);
      return add(Whole<4>());
    }
    row.next_part(c);
    add(Whole<kChunkGroups>());
  }
}

// Computes rows [begin, end) of the matrix.
template <class T>
void few_rows(const BlockProduct& p, size_t begin, size_t end) {
  const auto rows = static_cast<size_t>(p.matrix.rows);
  const auto row_bytes = static_cast<size_t>(p.matrix.row_bytes());
  const size_t ahead = fetch_ahead().stream, blocks = p.x.columns / T::kElements;
  const uint8_t* row = p.row(begin);
  for (size_t n = begin; n < end; ++n, row += row_bytes) {
    size_t i = 0;
    for (; FERRY_BLOCK_TILES && i + 4 <= p.x.rows; i += 4) {
      HWY_ALIGN float sums[4 * 8] = {};
      add_row<T, 4>(p, {row, blocks}, i, ahead, sums);
      for (size_t r = 0; r < 4; ++r) p.out[(i + r) * rows + n] = total(sums + 8 * r);
    }
    for (; i < p.x.rows; ++i) {
      HWY_ALIGN float sums[8] = {};
      add_row<T, 1>(p, {row, blocks}, i, ahead, sums);
      p.out[i * rows + n] = total(sums);
    }
  }
}

// ---- many rows of activations

#if FERRY_BLOCK_TILES

// Rows of a matrix: for each group of columns the codes, scales and offsets of all rows. Codes
// alternate in runs of 4 columns: row 0, row 1, ...
struct BlockTile {
  std::byte* codes;
  float* scales;     // [groups][kTileRows]
  float* offsets;    // [groups][halves][kTileRows]
  int16_t* factors;  // [groups][2][kTileRows][2]: the scale of each half, twice

  static size_t bytes(size_t columns) { return columns * kTileRows * 2; }
};
template <class T>
BlockTile tile_at(std::byte* p, size_t columns) {
  const size_t groups = columns / kGroupColumns;
  BlockTile t;
  t.codes = p;
  t.scales = reinterpret_cast<float*>(p + columns * kTileRows);
  t.offsets = t.scales + groups * kTileRows;
  t.factors = reinterpret_cast<int16_t*>(t.offsets + 2 * groups * kTileRows);
  return t;
}

template <class T>
HWY_INLINE void put_chunk(const BlockChunk& c, const BlockTile& t, size_t first_group,
                          size_t groups, size_t row) {
  HWY_ALIGN float offsets[2][kChunkGroups];
  if constexpr (!T::kSigned) chunk_offsets<T>(c, offsets);
  constexpr size_t kHalfCount = T::kHalves ? 2 : 1;
  for (size_t g = 0; g < groups; ++g) {
    const uint8_t* codes = c.codes + kGroupColumns * g;
    const size_t at = first_group + g;
    std::byte* to = t.codes + at * kGroupColumns * kTileRows + 4 * row;
    for (size_t i = 0; i < kGroupColumns; i += 4, to += 4 * kTileRows) {
      std::memcpy(to, codes + i, 4);
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

// Repeats 4 codes.
HWY_INLINE __m256i repeated(const int8_t* codes) {
  int32_t bits;
  std::memcpy(&bits, codes, sizeof bits);
  return _mm256_set1_epi32(bits);
}

// Sums or products of all rows of a tile with kActs rows of activations.
template <class V, size_t kActs>
using TileOf = V[kActs][kTileVectors];

// Computes the sums of products of codes of one group.
template <class T, size_t kActs>
HWY_INLINE void tile_sums(const BlockTile& t, size_t g, const int8_t* const (&x)[kActs],
                          TileOf<__m256i, kActs>& sums) {
  const size_t at = g * kGroupColumns;
  for (size_t a = 0; a < kActs; ++a) {
    for (size_t v = 0; v < kTileVectors; ++v) sums[a][v] = _mm256_setzero_si256();
  }
  const auto* w = reinterpret_cast<const __m256i*>(t.codes + at * kTileRows);
  if constexpr (T::kSigned) {
    // Magnitudes of the matrix are the unsigned operand; signs go to the activations.
    const __m256i ones = _mm256_set1_epi16(1);
    for (size_t k = 0; k < kGroupColumns; k += 4, w += kTileVectors) {
      const __m256i codes[2] = {_mm256_load_si256(w), _mm256_load_si256(w + 1)};
      const __m256i sizes[2] = {_mm256_abs_epi8(codes[0]), _mm256_abs_epi8(codes[1])};
      for (size_t a = 0; a < kActs; ++a) {
        const __m256i act = repeated(x[a] + at + k);
        for (size_t v = 0; v < kTileVectors; ++v) {
          const __m256i pairs = _mm256_maddubs_epi16(sizes[v], _mm256_sign_epi8(act, codes[v]));
          sums[a][v] = _mm256_add_epi32(sums[a][v], _mm256_madd_epi16(pairs, ones));
        }
      }
    }
  } else {
    // Sums of pairs fit 16 bits for this many steps of 4 columns.
    constexpr size_t kFit = 32767 / (2 * 127 * T::kMaxCode);
    constexpr size_t kMost = T::kHalves ? 4 : 8;
    constexpr size_t kRun = kFit >= kMost ? kMost : kFit >= 4 ? 4 : kFit >= 2 ? 2 : 1;
    static_assert(kFit >= 1);
    const auto* factors = reinterpret_cast<const __m256i*>(t.factors) + 2 * kTileVectors * g;
    for (size_t k = 0; k < 8; k += kRun) {
      TileOf<__m256i, kActs> pairs;
      for (size_t i = 0; i < kRun; ++i, w += kTileVectors) {
        const __m256i codes[2] = {_mm256_load_si256(w), _mm256_load_si256(w + 1)};
        for (size_t a = 0; a < kActs; ++a) {
          const __m256i act = repeated(x[a] + at + 4 * (k + i));
          for (size_t v = 0; v < kTileVectors; ++v) {
            const __m256i two = _mm256_maddubs_epi16(codes[v], act);
            pairs[a][v] = i == 0 ? two : _mm256_add_epi16(pairs[a][v], two);
          }
        }
      }
      for (size_t v = 0; v < kTileVectors; ++v) {
        const __m256i factor = T::kHalves ? _mm256_load_si256(factors + k / 4 * kTileVectors + v)
                                          : _mm256_set1_epi16(1);
        for (size_t a = 0; a < kActs; ++a) {
          sums[a][v] = _mm256_add_epi32(sums[a][v], _mm256_madd_epi16(pairs[a][v], factor));
        }
      }
    }
  }
}

template <class T, size_t kActs>
void tile_rows(const BlockProduct& p, const BlockTile& t, size_t n, size_t i) {
  const size_t groups = p.x.columns / kGroupColumns;
  const int8_t* x[kActs];  // codes
  const float* numbers[kActs];
  for (size_t a = 0; a < kActs; ++a) {
    x[a] = p.x.codes(i + a);
    numbers[a] = p.x.numbers(i + a);
  }
  TileOf<__m256, kActs> partial[8];
  for (size_t s = 0; s < 8; ++s) {
    TileOf<__m256, kActs>& acc = partial[s];
    for (size_t a = 0; a < kActs; ++a) {
      for (size_t v = 0; v < kTileVectors; ++v) acc[a][v] = _mm256_setzero_ps();
    }
    for (size_t g = s; g < groups; g += 8) {
      TileOf<__m256i, kActs> sums;
      tile_sums<T, kActs>(t, g, x, sums);
      const size_t number = g / kChunkGroups * BlockActivations::kNumbers + s;
      for (size_t v = 0; v < kTileVectors; ++v) {
        const __m256 scale = _mm256_load_ps(t.scales + g * kTileRows + 8 * v);
        for (size_t a = 0; a < kActs; ++a) {
          const float* of = numbers[a] + number;
          __m256 sum = _mm256_fmadd_ps(_mm256_cvtepi32_ps(sums[a][v]),
                                       _mm256_mul_ps(scale, _mm256_set1_ps(of[0])), acc[a][v]);
          if constexpr (!T::kSigned) {
            const float* offset = t.offsets + g * (T::kHalves ? 2 : 1) * kTileRows + 8 * v;
            sum = _mm256_fmadd_ps(_mm256_load_ps(offset), _mm256_set1_ps(of[T::kHalves ? 16 : 8]),
                                  sum);
            if constexpr (T::kHalves) {
              sum =
                  _mm256_fmadd_ps(_mm256_load_ps(offset + kTileRows), _mm256_set1_ps(of[24]), sum);
            }
          }
          acc[a][v] = sum;
        }
      }
    }
  }
  const auto rows = static_cast<size_t>(p.matrix.rows);
  for (size_t a = 0; a < kActs; ++a) {
    HWY_ALIGN float results[kTileRows];
    for (size_t v = 0; v < kTileVectors; ++v) {
      const auto sum = [&](size_t s) HWY_ATTR {
        return _mm256_add_ps(partial[s][a][v], partial[s + 4][a][v]);
      };
      _mm256_store_ps(results + 8 * v,
                      _mm256_add_ps(_mm256_add_ps(sum(0), sum(2)), _mm256_add_ps(sum(1), sum(3))));
    }
    const size_t count = rows - n < kTileRows ? rows - n : kTileRows;
    std::memcpy(p.out + (i + a) * rows + n, results, count * sizeof(float));
  }
}

template <class T>
void many_rows(const BlockProduct& p, size_t begin, size_t end, std::byte* scratch) {
  constexpr size_t kActs = 4;
  const BlockTile t = tile_at<T>(scratch, p.x.columns);
  for (size_t n = begin; n < end; n += kTileRows) {
    fill_tile<T>(p, n, t);
    size_t i = 0;
    for (; i + kActs <= p.x.rows; i += kActs) tile_rows<T, kActs>(p, t, n, i);
    for (; i < p.x.rows; ++i) tile_rows<T, 1>(p, t, n, i);
  }
}
#endif  // FERRY_BLOCK_TILES

}  // namespace HWY_NAMESPACE
}  // namespace ferry::kernels
HWY_AFTER_NAMESPACE();

#endif  // FERRY_BLOCK_PRODUCTS_INL_H_
