// The products of blocks of GGUF files with many rows of rounded activations, which share a tile of
// 16 rows of the matrix (block_tile_fill-inl.h). block_task() chooses between few and many.

// clang-format off
#if defined(FERRY_BLOCK_TILES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FERRY_BLOCK_TILES_INL_H_
#undef FERRY_BLOCK_TILES_INL_H_
#else
#define FERRY_BLOCK_TILES_INL_H_
#endif
// clang-format on

#include "kernels/block_tile_fill-inl.h"

FERRY_BLOCK_BEFORE();
namespace ferry::kernels {
namespace FERRY_BLOCK_NAMESPACE {

#if FERRY_BLOCK_TILES

// ---- the sums of products of codes of one group

// Repeats 4 codes.
HWY_INLINE TileInts repeated(const int8_t* codes) {
  int32_t bits;
  std::memcpy(&bits, codes, sizeof bits);
  return every(bits);
}

// Sums or products of all rows of a tile with kActs rows of activations.
template <class V, size_t kActs>
using TileOf = V[kActs][kTileVectors];

#if FERRY_BLOCK_VNNI || FERRY_BLOCK_NEON
#if FERRY_BLOCK_NEON == 2
// Adds products of columns [begin, end) to the sums, which are 0 at first. A run of two rows of
// the tile is a vector, as is that of two rows of activations; the four sums of their product are
// those of the first row of activations, then of the second. A single row is multiplied by dots.
template <size_t kActs>
HWY_INLINE void add_products(const std::byte* w, const int8_t* const (&x)[kActs], size_t begin,
                             size_t end, TileOf<TileInts, kActs>& sums) {
  constexpr size_t kPairs = 2 * kTileVectors;
  TileInts of_pairs[(kActs + 1) / 2][kPairs];
  for (auto& of_row : of_pairs) {
    for (TileInts& sum : of_row) sum = every(0);
  }
  for (size_t k = begin; k < end; k += sizeof(Run)) {
    for (size_t a = 0; a < kActs; a += 2) {
      const int8x16_t act = vcombine_s8(vld1_s8(x[a] + k), vld1_s8(x[kActs == 1 ? a : a + 1] + k));
      for (size_t p = 0; p < kPairs; ++p) {
        const int8x16_t codes = vld1q_s8(reinterpret_cast<const int8_t*>(w) + 16 * p);
        TileInts& sum = of_pairs[a / 2][p];
        sum = kActs == 1 ? vdotq_s32(sum, codes, act) : vmmlaq_s32(sum, act, codes);
      }
    }
    w += sizeof(Run) * kTileRows;
  }
  for (size_t a = 0; a < kActs; a += 2) {
    for (size_t v = 0; v < kTileVectors; ++v) {
      const TileInts first = of_pairs[a / 2][2 * v], second = of_pairs[a / 2][2 * v + 1];
      if constexpr (kActs == 1) {
        sums[a][v] = vpaddq_s32(first, second);
      } else {
        const int64x2_t p = vreinterpretq_s64_s32(first), q = vreinterpretq_s64_s32(second);
        sums[a][v] = vreinterpretq_s32_s64(vzip1q_s64(p, q));
        sums[a + 1][v] = vreinterpretq_s32_s64(vzip2q_s64(p, q));
      }
    }
  }
}
#else
// Adds products of columns [begin, end) to the sums.
template <size_t kActs>
HWY_INLINE void add_products(const std::byte* w, const int8_t* const (&x)[kActs], size_t begin,
                             size_t end, TileOf<TileInts, kActs>& sums) {
  for (size_t k = begin; k < end; k += sizeof(Run)) {
    TileInts codes[kTileVectors];
    for (size_t v = 0; v < kTileVectors; ++v, w += kVectorCodes) codes[v] = load_ints(w);
    for (size_t a = 0; a < kActs; ++a) {
      const TileInts act = repeated(x[a] + k);
      for (size_t v = 0; v < kTileVectors; ++v) {
        sums[a][v] = add_sums_of_four(sums[a][v], codes[v], act);
      }
    }
  }
}
#endif

// `code_sums` are the sums of the codes of activations.
template <class T, size_t kActs>
HWY_INLINE void tile_sums(const BlockTile& t, size_t g, const int8_t* const (&x)[kActs],
                          const int32_t (&code_sums)[kActs], TileOf<TileInts, kActs>& sums) {
  constexpr size_t kPart = T::kHalves ? 16 : kGroupColumns;
  const size_t at = g * kGroupColumns;
  const auto* factors = reinterpret_cast<const std::byte*>(t.factors) + 2 * 4 * kTileRows * g;
  for (size_t k = at; k < at + kGroupColumns; k += kPart) {
    TileOf<TileInts, kActs> part;
    for (size_t a = 0; a < kActs; ++a) {
      for (TileInts& sum : part[a]) {
        sum = every(T::kSigned && kShiftedSigns != 0 ? -128 * code_sums[a] : 0);
      }
    }
    add_products<kActs>(t.codes + k * kTileRows, x, k, k + kPart, part);
    for (size_t v = 0; v < kTileVectors; ++v) {
      TileInts factor = every(1);
      if constexpr (T::kHalves) factor = high_halves(load_ints(factors));
      factors += kVectorCodes;
      for (size_t a = 0; a < kActs; ++a) {
        if constexpr (T::kHalves) part[a][v] = times(part[a][v], factor);
        sums[a][v] = k == at ? part[a][v] : plus(sums[a][v], part[a][v]);
      }
    }
  }
}
#else
template <class T, size_t kActs>
HWY_INLINE void tile_sums(const BlockTile& t, size_t g, const int8_t* const (&x)[kActs],
                          const int32_t (&)[kActs], TileOf<TileInts, kActs>& sums) {
  const size_t at = g * kGroupColumns;
  for (size_t a = 0; a < kActs; ++a) {
    for (size_t v = 0; v < kTileVectors; ++v) sums[a][v] = _mm256_setzero_si256();
  }
  const auto* w = reinterpret_cast<const __m256i*>(t.codes + at * kTileRows);
  if constexpr (T::kSigned) {
    // Magnitudes of the matrix are the unsigned operand; signs go to the activations.
    const __m256i ones = _mm256_set1_epi16(1);
#pragma GCC unroll 8
    for (size_t k = 0; k < kGroupColumns; k += 4, w += kTileVectors) {
      const __m256i codes[2] = {_mm256_load_si256(w), _mm256_load_si256(w + 1)};
      const __m256i sizes[2] = {_mm256_abs_epi8(codes[0]), _mm256_abs_epi8(codes[1])};
      for (size_t a = 0; a < kActs; ++a) {
        const __m256i act = repeated(x[a] + at + k);
        for (size_t v = 0; v < kTileVectors; ++v) {
          const __m256i pairs = _mm256_maddubs_epi16(sizes[v], _mm256_sign_epi8(act, codes[v]));
          sums[a][v] = _mm256_add_epi32(sums[a][v], _mm256_madd_epi16(pairs, ones));
          keep(sums[a][v]);
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
#pragma GCC unroll 8
      for (size_t i = 0; i < kRun; ++i, w += kTileVectors) {
        const __m256i codes[2] = {_mm256_load_si256(w), _mm256_load_si256(w + 1)};
        for (size_t a = 0; a < kActs; ++a) {
          const __m256i act = repeated(x[a] + at + 4 * (k + i));
          for (size_t v = 0; v < kTileVectors; ++v) {
            const __m256i two = _mm256_maddubs_epi16(codes[v], act);
            pairs[a][v] = i == 0 ? two : _mm256_add_epi16(pairs[a][v], two);
            keep(pairs[a][v]);
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
#endif  // FERRY_BLOCK_VNNI || FERRY_BLOCK_NEON

// ---- products

template <class T, size_t kActs>
void tile_rows(const BlockProduct& p, const BlockTile& t, size_t n, size_t i) {
  const size_t groups = p.x.columns / kGroupColumns;
  const int8_t* x[kActs];  // codes
  const float* numbers[kActs];
  for (size_t a = 0; a < kActs; ++a) {
    x[a] = p.x.codes(i + a);
    numbers[a] = p.x.numbers(i + a);
  }
  TileOf<TileFloats, kActs> partial[8];
  for (size_t s = 0; s < 8; ++s) {
    TileOf<TileFloats, kActs> acc;
    for (size_t a = 0; a < kActs; ++a) {
      for (size_t v = 0; v < kTileVectors; ++v) acc[a][v] = every(0.0F);
    }
    for (size_t g = s; g < groups; g += 8) {
      const size_t number = g / kChunkGroups * BlockActivations::kNumbers + s;
      int32_t code_sums[kActs];
      for (size_t a = 0; a < kActs; ++a) {
        std::memcpy(&code_sums[a], numbers[a] + number + BlockActivations::kCodeSums,
                    sizeof code_sums[a]);
      }
      TileOf<TileInts, kActs> sums;
      tile_sums<T, kActs>(t, g, x, code_sums, sums);
      for (size_t v = 0; v < kTileVectors; ++v) {
        const TileFloats scale = load_floats(t.scales + g * kTileRows + kVectorRows * v);
        for (size_t a = 0; a < kActs; ++a) {
          const float* of = numbers[a] + number;
          TileFloats sum = fused(as_floats(sums[a][v]), times(scale, every(of[0])), acc[a][v]);
          if constexpr (!T::kSigned) {
            const float* offset =
                t.offsets + g * (T::kHalves ? 2 : 1) * kTileRows + kVectorRows * v;
            sum = fused(load_floats(offset), every(of[T::kHalves ? 16 : 8]), sum);
            if constexpr (T::kHalves) {
              sum = fused(load_floats(offset + kTileRows), every(of[24]), sum);
            }
          }
          acc[a][v] = sum;
        }
      }
    }
    for (size_t a = 0; a < kActs; ++a) {
      for (size_t v = 0; v < kTileVectors; ++v) partial[s][a][v] = acc[a][v];
    }
  }
  const auto rows = static_cast<size_t>(p.matrix.rows);
  for (size_t a = 0; a < kActs; ++a) {
    alignas(64) float results[kTileRows];  // of any vector; the target's alignment is AVX2's
    for (size_t v = 0; v < kTileVectors; ++v) {
      const auto sum = [&](size_t s) FERRY_BLOCK_ATTR {
        return plus(partial[s][a][v], partial[s + 4][a][v]);
      };
      store_floats(results + kVectorRows * v, plus(plus(sum(0), sum(2)), plus(sum(1), sum(3))));
    }
    const size_t count = rows - n < kTileRows ? rows - n : kTileRows;
    std::memcpy(p.out + (i + a) * rows + n, results, count * sizeof(float));
  }
}

template <class T>
void many_rows(const BlockProduct& p, size_t begin, size_t end, std::byte* scratch) {
  const BlockTile t = tile_at<T>(scratch, p.x.columns);
  for (size_t n = begin; n < end; n += kTileRows) {
    fill_tile<T>(p, n, t);
    size_t i = 0;
    for (; i + kMostActs <= p.x.rows; i += kMostActs) tile_rows<T, kMostActs>(p, t, n, i);
    if constexpr (kMostActs > 4) {
      for (; i + 4 <= p.x.rows; i += 4) tile_rows<T, 4>(p, t, n, i);
    }
    for (; i < p.x.rows; ++i) tile_rows<T, 1>(p, t, n, i);
  }
}

#endif  // FERRY_BLOCK_TILES

// Returns the bytes of scratch memory that block_task() needs.
size_t block_scratch(size_t m, size_t columns) {
#if FERRY_BLOCK_TILES
  if (m > kFewBlockRows) return BlockTile::bytes(columns);
#endif
  (void)m;
  (void)columns;
  return 0;
}

// Computes rows [begin, end) of the matrix.
void block_task(const BlockProduct& p, size_t begin, size_t end, [[maybe_unused]] float* scratch) {
#if FERRY_BLOCK_TILES
  if (p.x.rows > kFewBlockRows) {
    with_block_type(p.matrix.layout->type, [&]<class T>() {
      many_rows<T>(p, begin, end, reinterpret_cast<std::byte*>(scratch));
    });
    return;
  }
#endif
  with_block_type(p.matrix.layout->type, [&]<class T>() { few_rows<T>(p, begin, end); });
}

}  // namespace FERRY_BLOCK_NAMESPACE
}  // namespace ferry::kernels
FERRY_BLOCK_AFTER();

#endif  // FERRY_BLOCK_TILES_INL_H_
