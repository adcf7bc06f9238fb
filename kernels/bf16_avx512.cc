// AVX-512 with BF16. Vector lane l takes the pairs k = 2 l, 2 l + 32, ... in turn, then the lanes
// are added in the order of _mm512_reduce_add_ps.
#include "kernels/bf16_linear.h"

#if defined(__x86_64__)
#include <immintrin.h>

#include <cstring>

#include "core/dtype.h"
#include "kernels/fetch_ahead.h"

#ifdef __clang__
#pragma clang attribute push(                                                          \
    __attribute__((target("avx2,fma,avx512f,avx512bw,avx512dq,avx512vl,avx512bf16"))), \
    apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,fma,avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")
// GCC 12's own header causes the warning: https://gcc.gnu.org/bugzilla/show_bug.cgi?id=105593
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif

namespace ferry::kernels {
namespace {

constexpr size_t kLanes = 32;  // bf16 values of a vector
// The tile of accumulators fits the registers. Its rows of x stay in the first cache.
constexpr size_t kRows = 6, kColumns = 4;
// Up to this many rows read w from one end to the other.
constexpr size_t kFewRows = 16;
// Rows of w that stay in the second cache, at most. Tiles that follow each other write the same
// lines of out: rows of out that are a power of two apart share places of the caches.
constexpr size_t kBlockBytes = size_t{1} << 18;

inline __m512i load(const uint16_t* p, __mmask32 lanes) {
  return _mm512_maskz_loadu_epi16(lanes, p);
}
inline __m512 add_products(__m512 sum, __m512i a, __m512i b) {
  return _mm512_dpbf16_ps(sum, (__m512bh)a, (__m512bh)b);
}

// Adds the products of lanes of the columns from c on. Loops are unrolled by name, because GCC 12
// otherwise stores every sum after each step.
template <size_t kM, size_t kN>
inline void step(const uint16_t* x, const uint16_t* w, size_t x_apart, size_t apart,
                 __mmask32 lanes, __m512 (&sums)[kM * kN]) {
  __m512i columns[kN];
#pragma GCC unroll 8
  for (size_t j = 0; j < kN; ++j) columns[j] = load(w + j * apart, lanes);
#pragma GCC unroll 8
  for (size_t i = 0; i < kM; ++i) {
    const __m512i row = load(x + i * x_apart, lanes);
#pragma GCC unroll 8
    for (size_t j = 0; j < kN; ++j) {
      sums[i * kN + j] = add_products(sums[i * kN + j], row, columns[j]);
    }
  }
}

// Returns the sum of the lanes of each vector, in the order of _mm512_reduce_add_ps.
inline __m128 quarter(__m512 v) {
  const __m256 half = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
  return _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
}
inline __m128 four_sums(__m512 v0, __m512 v1, __m512 v2, __m512 v3) {
  const __m128 a = quarter(v0), b = quarter(v1), c = quarter(v2), d = quarter(v3);
  const __m128 ab = _mm_add_ps(_mm_unpacklo_ps(a, b), _mm_unpackhi_ps(a, b));
  const __m128 cd = _mm_add_ps(_mm_unpacklo_ps(c, d), _mm_unpackhi_ps(c, d));
  return _mm_add_ps(_mm_movelh_ps(ab, cd), _mm_movehl_ps(cd, ab));
}

// Rounds four values as f32_to_bf16() does, and stores them `apart` from each other.
inline void store_four(__m128 values, uint16_t* out, size_t apart) {
  const __m128i bits = _mm_castps_si128(values), high = _mm_srli_epi32(bits, 16);
  const __m128i odd = _mm_and_si128(high, _mm_set1_epi32(1));
  const __m128i up = _mm_add_epi32(_mm_add_epi32(bits, _mm_set1_epi32(0x7fff)), odd);
  const __m128i nan = _mm_or_si128(high, _mm_set1_epi32(0x40));
  const __m128i rounded = _mm_mask_blend_epi32(_mm_cmp_ps_mask(values, values, _CMP_UNORD_Q),
                                               _mm_srli_epi32(up, 16), nan);
  alignas(8) uint16_t four[kColumns];
  _mm_storel_epi64(reinterpret_cast<__m128i*>(four), _mm_cvtepi32_epi16(rounded));
  if (apart == 1) {
    std::memcpy(out, four, sizeof four);
    return;
  }
  for (size_t q = 0; q < kColumns; ++q) out[q * apart] = four[q];
}

// The steps of sixteen_sums(), each of which halves the lanes of a sum.
inline __m512 add_halves(__m512 a, __m512 b) {
  return _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x44), _mm512_shuffle_f32x4(a, b, 0xee));
}
inline __m512 add_quarters(__m512 ab, __m512 cd) {
  return _mm512_add_ps(_mm512_shuffle_f32x4(ab, cd, 0x88), _mm512_shuffle_f32x4(ab, cd, 0xdd));
}
inline __m512d add_pairs(__m512 a, __m512 b) {
  return _mm512_castps_pd(_mm512_add_ps(_mm512_unpacklo_ps(a, b), _mm512_unpackhi_ps(a, b)));
}
inline __m512 add_neighbours(__m512d ab, __m512d cd) {
  return _mm512_add_ps(_mm512_castpd_ps(_mm512_unpacklo_pd(ab, cd)),
                       _mm512_castpd_ps(_mm512_unpackhi_pd(ab, cd)));
}

// Computes four_sums() of rows a, b, c and d of kColumns vectors, in fewer instructions: lane 4 r +
// c has the sum of column c of the r-th row.
template <size_t a, size_t b, size_t c, size_t d, size_t kVectors>
inline __m512 sixteen_sums(const __m512 (&v)[kVectors]) {
  constexpr size_t k = kColumns;
  const __m512 first = add_quarters(add_halves(v[a * k], v[b * k]), add_halves(v[c * k], v[d * k]));
  const __m512 second =
      add_quarters(add_halves(v[a * k + 1], v[b * k + 1]), add_halves(v[c * k + 1], v[d * k + 1]));
  const __m512 third =
      add_quarters(add_halves(v[a * k + 2], v[b * k + 2]), add_halves(v[c * k + 2], v[d * k + 2]));
  const __m512 fourth =
      add_quarters(add_halves(v[a * k + 3], v[b * k + 3]), add_halves(v[c * k + 3], v[d * k + 3]));
  return add_neighbours(add_pairs(first, second), add_pairs(third, fourth));
}

// Rounds values as f32_to_bf16() does.
inline __m256i rounded(__m512 values) {
  const __m512i bits = _mm512_castps_si512(values), high = _mm512_srli_epi32(bits, 16);
  const __m512i odd = _mm512_and_si512(high, _mm512_set1_epi32(1));
  const __m512i up = _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), odd);
  const __m512i nan = _mm512_or_si512(high, _mm512_set1_epi32(0x40));
  const __mmask16 is_nan = _mm512_cmp_ps_mask(values, values, _CMP_UNORD_Q);
  return _mm512_cvtepi32_epi16(_mm512_mask_blend_epi32(is_nan, _mm512_srli_epi32(up, 16), nan));
}

// Stores kColumns columns of the first `count` of four rows, which are `apart` from each other.
inline void store_rows(__m256i values, uint16_t* out, size_t apart, size_t count) {
  alignas(32) uint16_t rows[4][kColumns];
  _mm256_store_si256(reinterpret_cast<__m256i*>(rows), values);
#pragma GCC unroll 4
  for (size_t r = 0; r < count; ++r) std::memcpy(out + r * apart, rows[r], sizeof rows[r]);
}

// Computes columns j, j + apart, ... of rows [i, i + kM).
template <size_t kM, size_t kN>
void tile(const Bf16Product& p, size_t i, size_t j, size_t apart, FetchDistance ahead) {
  __m512 sums[kM * kN];
#pragma GCC unroll 24
  for (size_t q = 0; q < kM * kN; ++q) sums[q] = _mm512_setzero_ps();
  const uint16_t* x = p.x_row(i);
  const size_t x_apart = p.x_apart();
  const uint16_t* w = p.w + j * p.k;
  size_t c = 0;
  for (; c + kLanes <= p.k; c += kLanes) {
    if (ahead.bytes > 0) {
      for (size_t q = 0; q < kN; ++q) ahead.fetch(w + q * apart * p.k + c);
    }
    step<kM, kN>(x + c, w + c, x_apart, apart * p.k, ~__mmask32{0}, sums);
  }
  if (c < p.k) {
    const auto rest = static_cast<__mmask32>((uint64_t{1} << (p.k - c)) - 1);
    step<kM, kN>(x + c, w + c, x_apart, apart * p.k, rest, sums);
  }
  uint16_t* out = p.out + i * p.n + j;
  if constexpr (kN == kColumns && kM == kRows) {
    if (apart == 1) {
      store_rows(rounded(sixteen_sums<0, 1, 2, 3>(sums)), out, p.n, 4);
      store_rows(rounded(sixteen_sums<4, 5, 4, 5>(sums)), out + 4 * p.n, p.n, 2);
      return;
    }
  }
#pragma GCC unroll 8
  for (size_t r = 0; r < kM; ++r, out += p.n) {
    if constexpr (kN == kColumns) {
      const __m512* row = sums + r * kN;
      store_four(four_sums(row[0], row[1], row[2], row[3]), out, apart);
    } else {
      static_assert(kN == 1);
      *out = f32_to_bf16(_mm512_reduce_add_ps(sums[r]));
    }
  }
}

// Computes tile() for `rows` rows, at most kRows.
template <size_t kN, size_t kM = kRows>
void tile_of(size_t rows, const Bf16Product& p, size_t i, size_t j, size_t apart,
             FetchDistance ahead) {
  if constexpr (kM > 1) {
    if (rows < kM) return tile_of<kN, kM - 1>(rows, p, i, j, apart, ahead);
  }
  tile<kM, kN>(p, i, j, apart, ahead);
}

// Rows of w that are computed next. The processor itself fetches no further than the end of the
// page that it reads, so each tile of the block before fetches some of them into the second cache.
class NextBlock {
 public:
  // `block` columns follow, and tiles of `passes` rows fetch them.
  NextBlock(const Bf16Product& p, size_t j, size_t block, size_t passes)
      : at_(reinterpret_cast<const char*>(p.w + j * p.k)),
        end_(reinterpret_cast<const char*>(p.w + (p.n - j < block ? p.n : j + block) * p.k)),
        share_(kColumns * p.k * sizeof(uint16_t) / passes + kLineBytes) {}

  void fetch_share() {
    const char* end = end_ - at_ < static_cast<ptrdiff_t>(share_) ? end_ : at_ + share_;
    for (; at_ < end; at_ += kLineBytes) _mm_prefetch(at_, _MM_HINT_T1);
  }

 private:
  static constexpr size_t kLineBytes = 64;
  const char* at_;
  const char* end_;
  size_t share_;  // bytes for each tile
};

void columns_of_rows(const Bf16Product& p, size_t rows, size_t i, size_t j, size_t end,
                     NextBlock& next) {
  for (; j + kColumns <= end; j += kColumns) {
    tile_of<kColumns>(rows, p, i, j, 1, {});
    next.fetch_share();
  }
  for (; j < end; ++j) tile_of<1>(rows, p, i, j, 1, {});
}

// A few rows read w once, at the speed of memory: as several streams, each of which continues
// without a gap from one row of w to the next.
void few_rows(const Bf16Product& p, size_t begin, size_t end) {
  const size_t band = (end - begin) / kColumns;
  const FetchDistance ahead = fetch_ahead(p.m).band;
  const size_t tiles = (p.m + kRows - 1) / kRows, rows = (p.m + tiles - 1) / tiles;
  const auto rows_from = [&](size_t i) { return p.m - i < rows ? p.m - i : rows; };
  for (size_t j = begin; j < begin + band; ++j) {
    tile_of<kColumns>(rows, p, 0, j, band, ahead);
    for (size_t i = rows; i < p.m; i += rows) tile_of<kColumns>(rows_from(i), p, i, j, band, {});
  }
  for (size_t j = begin + band * kColumns; j < end; ++j) {
    for (size_t i = 0; i < p.m; i += rows) tile_of<1>(rows_from(i), p, i, j, 1, {});
  }
}

}  // namespace

void bf16_columns_avx512(const Bf16Product& p, size_t begin, size_t end) {
  if (p.m <= kFewRows) return few_rows(p, begin, end);
  const size_t fit = kBlockBytes / (p.k * sizeof(uint16_t)) / kColumns * kColumns;
  const size_t block = fit < kColumns ? kColumns : fit;
  for (size_t j = begin; j < end; j += block) {
    const size_t j_end = j + block < end ? j + block : end;
    NextBlock next(p, j_end, block, (p.m + kRows - 1) / kRows);
    for (size_t i = 0; i < p.m; i += kRows) {
      columns_of_rows(p, p.m - i < kRows ? p.m - i : kRows, i, j, j_end, next);
    }
  }
}

}  // namespace ferry::kernels

#ifdef __clang__
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

#endif  // __x86_64__
