// Products with codes on x86, for one instruction set. Each quantized_TARGET.cc includes this file
// once between pragmas that choose the instruction set. A `Dot` says how products of bytes are
// summed:
//   kPairs     sums of pairs of products in 16 bits (maddubs) are the only ones; else groups of 4
//              in 32 bits
//   Wide       the vectors of many rows: V256 or V512 of quantized_vectors-inl.h
//   dot(a,u,s) a + the products of 4 unsigned and 4 signed bytes in each lane; absent with kPairs
//   kFew512    `Few` multiplies few rows and codes of 4 bits by vectors of 512 bits, and has masks
// Code here calls no functions of the standard library. They would be compiled for this instruction
// set, and the linker might keep that copy for the whole program.

#include "kernels/quantized_rows-inl.h"
#include "kernels/quantized_scales-inl.h"
#include "kernels/quantized_vectors-inl.h"

namespace ferry::kernels {
namespace {

// ---- Few rows: one row of the matrix after the other, read in place

inline __m256i load256(const void* p) { return _mm256_loadu_si256(static_cast<const __m256i*>(p)); }

// Returns acc + the products of 64 codes of 4 bits: lanes 0 to 3 for the first 32, the others for
// the rest.
template <class Dot>
inline __m256i dot64(__m256i acc, const uint8_t* codes, const SplitCodes& x) {
  const __m256i mask = _mm256_set1_epi8(15);
  const __m256i w = load256(codes);
  const __m256i low = _mm256_and_si256(w, mask);
  const __m256i high = _mm256_and_si256(_mm256_srli_epi16(w, 4), mask);
  const __m256i even = load256(x.even()), odd = load256(x.odd());
  if constexpr (Dot::kPairs) {
    const __m256i pairs =
        _mm256_add_epi16(_mm256_maddubs_epi16(low, even), _mm256_maddubs_epi16(high, odd));
    return _mm256_add_epi32(acc, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
  } else {
    return Dot::dot(Dot::dot(acc, low, even), high, odd);
  }
}

// Returns the products of codes - 8.
template <class Dot>
inline __m256i products64(const uint8_t* codes, const SplitCodes& x) {
  return dot64<Dot>(load256(x.offsets()), codes, x);
}
template <class Dot>
inline __m256i add_products64(__m256i acc, const uint8_t* codes, const SplitCodes& x) {
  return dot64<Dot>(_mm256_add_epi32(acc, load256(x.offsets())), codes, x);
}

// Computes 8 groups of 32 columns.
template <class Dot>
inline __m256i eight_blocks(const uint8_t* codes, const SplitCodes& x) {
  if constexpr (Dot::kFew512) return Dot::Few::eight_blocks(codes, x);
  const __m256i a = products64<Dot>(codes, x), b = products64<Dot>(codes + 32, x.from(64));
  const __m256i c = products64<Dot>(codes + 64, x.from(128)),
                d = products64<Dot>(codes + 96, x.from(192));
  return _mm256_permutevar8x32_epi32(four_sums(a, b, c, d),
                                     _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}

// The lanes of the result are partial sums of one group of `bytes` bytes.
template <class Dot>
inline __m256i long_group(const uint8_t* codes, size_t bytes, SplitCodes x) {
  __m256i acc = _mm256_setzero_si256(), other = acc;
  const FetchDistance ahead = fetch_ahead(1).nibbles;
  for (; bytes >= 64; bytes -= 64, codes += 64, x.column += 128) {
    ahead.fetch(codes);
    acc = add_products64<Dot>(acc, codes, x);
    other = add_products64<Dot>(other, codes + 32, x.from(64));
  }
  alignas(32) uint8_t rest[64] = {};
  if (bytes >= 32) {
    acc = add_products64<Dot>(acc, codes, x);
    bytes -= 32, codes += 32, x.column += 64;
  }
  if (bytes > 0) {
    __builtin_memcpy(rest, codes, bytes);
    acc = add_products64<Dot>(acc, rest, x);
  }
  return _mm256_add_epi32(acc, other);
}

// Computes 8 groups, each a multiple of 64 columns. The size of groups is a constant if kBytes > 0.
template <class Dot, size_t kBytes>
inline __m256i eight_groups(const uint8_t* codes, size_t group_bytes, SplitCodes x,
                            FetchDistance ahead) {
  const size_t bytes = kBytes > 0 ? kBytes : group_bytes;
  __m256i sums[8];
#pragma GCC unroll 8
  for (size_t i = 0; i < 8; ++i) {
    ahead.fetch(codes);
    if constexpr (Dot::kFew512 && kBytes == 64) {
      sums[i] = Dot::Few::group_of_128(codes, x);
    } else {
      sums[i] = products64<Dot>(codes, x);
      for (size_t b = 32; b < bytes; b += 32) {
        if (b % 64 == 0) ahead.fetch(codes + b);
        sums[i] = add_products64<Dot>(sums[i], codes + b, x.from(2 * b));
      }
    }
    codes += bytes, x.column += 2 * bytes;
  }
  return sums_of_lanes(sums);
}

// Computes fewer than 8 groups, or the whole row.
template <class Dot>
inline __m256i some_groups(size_t count, const uint8_t* codes, size_t bytes, const SplitCodes& x) {
  __m256i sums[8];
  for (size_t i = 0; i < 8; ++i) {
    sums[i] = i < count ? long_group<Dot>(codes + i * bytes, bytes, x.from(2 * i * bytes))
                        : _mm256_setzero_si256();
  }
  return sums_of_lanes(sums);
}

template <class Dot, bool kBf16>
inline __m256 scales_of_rest(const std::byte* scales, size_t count) {
  if constexpr (Dot::kFew512) return Dot::Few::template some_scales<kBf16>(scales, count);
  return some_scales<kBf16>(scales, count);
}

// Returns the sum of the 8 partial sums.
inline float sum_partials(__m256 v) {
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

struct RowOfGroups {
  const uint8_t* codes;
  const std::byte* scales;
  SplitCodes x;
  FetchDistance ahead;  // of the codes
};

// Computes fewer than 8 groups of 32 columns. The sums of the others are 0.
template <class Dot>
inline __m256i some_blocks(const RowOfGroups& r, size_t groups) {
  if constexpr (Dot::kFew512) return Dot::Few::some_blocks(r.codes, groups, r.x);
  __m256i sums[4];
  for (size_t i = 0; i < 4; ++i) {
    sums[i] = _mm256_setzero_si256();
    if (2 * i >= groups) continue;
    if (2 * i + 1 < groups) {
      sums[i] = products64<Dot>(r.codes + 32 * i, r.x.from(64 * i));
      continue;
    }
    alignas(32) uint8_t half[32] = {};
    __builtin_memcpy(half, r.codes + 32 * i, 16);
    sums[i] = products64<Dot>(half, r.x.from(64 * i));
  }
  return _mm256_permutevar8x32_epi32(four_sums(sums[0], sums[1], sums[2], sums[3]),
                                     _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}

// Returns acc + the products of 2 kPairs groups of 32 columns, times their scales. Rows of whole
// heads of 64 columns often end in so many: copies of the rest of a row, which take any number,
// would cost as much as a quarter of a row of 576 columns.
template <class Dot, bool kBf16, size_t kPairs>
inline __m256 pairs_of_blocks(const RowOfGroups& r, __m256 acc) {
  __m256i sums[4] = {};
  for (size_t i = 0; i < kPairs; ++i) {
    sums[i] = products64<Dot>(r.codes + 32 * i, r.x.from(64 * i));
  }
  const __m256i low = _mm256_hadd_epi32(sums[0], sums[1]);
  __m256i high = _mm256_setzero_si256();
  if constexpr (kPairs == 3) high = _mm256_hadd_epi32(sums[2], sums[3]);
  const __m256i in_order = _mm256_permutevar8x32_epi32(_mm256_hadd_epi32(low, high),
                                                       _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
  return _mm256_fmadd_ps(_mm256_cvtepi32_ps(in_order), pairs_of_scales<kBf16, kPairs>(r.scales),
                         acc);
}

template <class Dot, bool kBf16>
inline float sum_blocks_of_32(RowOfGroups r, size_t groups) {
  constexpr size_t kScales = kBf16 ? 16 : 32;
  __m256 acc = _mm256_setzero_ps();
  const FetchDistance scales_ahead = {r.ahead.bytes / 128 * kScales, r.ahead.into_second};
  for (; groups >= 8; groups -= 8) {
    if (r.ahead.bytes > 0) {
      r.ahead.fetch(r.codes);
      r.ahead.fetch(r.codes + 64);
      scales_ahead.fetch(r.scales);
    }
    const __m256 sums = _mm256_cvtepi32_ps(eight_blocks<Dot>(r.codes, r.x));
    acc = _mm256_fmadd_ps(sums, eight_scales<kBf16>(r.scales), acc);
    r = {r.codes + 128, r.scales + kScales, r.x.from(256), r.ahead};
  }
  if (groups == 0) return sum_partials(acc);
  if constexpr (!Dot::kFew512) {
    if (groups == 2) return sum_partials(pairs_of_blocks<Dot, kBf16, 1>(r, acc));
    if (groups == 4) return sum_partials(pairs_of_blocks<Dot, kBf16, 2>(r, acc));
    if (groups == 6) return sum_partials(pairs_of_blocks<Dot, kBf16, 3>(r, acc));
  }
  const __m256 sums = _mm256_cvtepi32_ps(some_blocks<Dot>(r, groups));
  const __m256 scales = scales_of_rest<Dot, kBf16>(r.scales, groups);
  return sum_partials(_mm256_fmadd_ps(sums, scales, acc));
}

template <class Dot, bool kBf16, size_t kBytes = 0>
inline float sum_long_groups(RowOfGroups r, size_t groups, size_t bytes) {
  constexpr size_t kScales = kBf16 ? 16 : 32;
  __m256 acc = _mm256_setzero_ps();
  const FetchDistance scales_ahead = {r.ahead.bytes / (8 * bytes) * kScales, r.ahead.into_second};
  for (; groups >= 8; groups -= 8) {
    scales_ahead.fetch(r.scales);
    const __m256i sums = eight_groups<Dot, kBytes>(r.codes, bytes, r.x, r.ahead);
    acc = _mm256_fmadd_ps(_mm256_cvtepi32_ps(sums), eight_scales<kBf16>(r.scales), acc);
    r = {r.codes + 8 * bytes, r.scales + kScales, r.x.from(16 * bytes), r.ahead};
  }
  if (groups == 0) return sum_partials(acc);
  const __m256i sums = some_groups<Dot>(groups, r.codes, bytes, r.x);
  const __m256 scales = scales_of_rest<Dot, kBf16>(r.scales, groups);
  return sum_partials(_mm256_fmadd_ps(_mm256_cvtepi32_ps(sums), scales, acc));
}

// Groups of 32 and of 128 columns are the usual ones.
template <class Dot, bool kBf16>
inline float sum_of_row(const RowOfGroups& r, const Groups& groups) {
  if (groups.columns == kBlockColumns) return sum_blocks_of_32<Dot, kBf16>(r, groups.count);
  constexpr size_t kUsual = 64;  // in bytes
  const size_t bytes = groups.columns / 2;
  return bytes == kUsual ? sum_long_groups<Dot, kBf16, kUsual>(r, groups.count, kUsual)
                         : sum_long_groups<Dot, kBf16>(r, groups.count, bytes);
}

template <class Dot, bool kBf16>
inline void few_rows4(const CodedProduct& p, const Activations& x, size_t begin, size_t end) {
  const CodedMatrix& w = *p.matrix;
  const Groups groups(w);
  const auto rows = static_cast<size_t>(w.rows);
  const FetchDistance ahead = fetch_ahead(1).nibbles;
  const size_t bytes = row_bytes(w), scale_bytes = groups.count * (kBf16 ? 2 : 4);
  const uint8_t* codes = row_codes(w, begin);
  const std::byte* scales = row_scales(w, begin);
  for (size_t n = begin; n < end; ++n, codes += bytes, scales += scale_bytes) {
    for (size_t i = 0; i < x.rows; ++i) {
      const ActivationRow row = x.row(i);
      const RowOfGroups r{codes, scales, SplitCodes(row), ahead};
      const float sum = sum_of_row<Dot, kBf16>(r, groups);
      p.out[i * rows + n] = group_result(p, row.head().row, sum, n);
    }
  }
}

template <class Dot>
void few4(const CodedProduct& p, const Activations& x, size_t begin, size_t end) {
  if (p.matrix->scale_dtype == DType::kBF16) return few_rows4<Dot, true>(p, x, begin, end);
  few_rows4<Dot, false>(p, x, begin, end);
}

inline __m256i widen16(const void* p) {
  return _mm256_cvtepi8_epi16(_mm_loadu_si128(static_cast<const __m128i*>(p)));
}

// Returns acc + the products of 32 codes of 8 bits. Without kPairs they are products of codes +
// 128.
template <class Dot>
inline __m256i dot32(__m256i acc, const uint8_t* codes, const int8_t* x) {
  if constexpr (Dot::kPairs) {
    acc = _mm256_add_epi32(acc, _mm256_madd_epi16(widen16(codes), widen16(x)));
    return _mm256_add_epi32(acc, _mm256_madd_epi16(widen16(codes + 16), widen16(x + 16)));
  } else {
    const __m256i w = _mm256_xor_si256(load256(codes), _mm256_set1_epi8(-128));
    return Dot::dot(acc, w, load256(x));
  }
}

// The lanes of the result sum up to the products of a row of 8-bit codes with codes `x`. Without
// kPairs they are products of codes + 128.
template <class Dot>
inline __m256i row_products(const uint8_t* codes, const int8_t* x, size_t columns,
                            FetchDistance ahead) {
  __m256i acc = _mm256_setzero_si256(), other = acc;
  size_t k = 0;
  for (; k + 64 <= columns; k += 64) {
    ahead.fetch(codes + k);
    acc = dot32<Dot>(acc, codes + k, x + k);
    other = dot32<Dot>(other, codes + k + 32, x + k + 32);
  }
  alignas(32) uint8_t rest[64] = {};
  if (k < columns) {
    __builtin_memcpy(rest, codes + k, columns - k);
    acc = dot32<Dot>(acc, rest, x + k);
    other = dot32<Dot>(other, rest + 32, x + k + 32);
  }
  return _mm256_add_epi32(acc, other);
}

// Returns the excess of `row_products` for codes `x` whose sum is `sum`.
template <class Dot>
inline int32_t excess(int32_t sum) {
  return Dot::kPairs ? 0 : 128 * sum;
}

// Returns the sum of products of a row of 8-bit codes with codes `x`, whose sum is `sum`.
template <class Dot>
inline int32_t dot_row(const uint8_t* codes, const int8_t* x, size_t columns, int32_t sum,
                       FetchDistance ahead) {
  __m256i acc = row_products<Dot>(codes, x, columns, ahead);
  acc = four_sums(acc, acc, acc, acc);
  return _mm256_cvtsi256_si32(acc) + _mm256_extract_epi32(acc, 4) - excess<Dot>(sum);
}

// Computes the results of four rows of the matrix from `n` on, for one row of activations. The rows
// are read one after the other in place; only the additions across lanes are done together.
template <class Dot>
inline void four_rows8(const CodedProduct& p, const ActivationRow& row, size_t columns, size_t n,
                       FetchDistance ahead, float* out) {
  __m256i acc[4];
  for (size_t j = 0; j < 4; ++j) {
    acc[j] = row_products<Dot>(row_codes(*p.matrix, n + j), row.codes(), columns, ahead);
  }
  const __m256i halves = four_sums(acc[0], acc[1], acc[2], acc[3]);
  alignas(16) int32_t sums[4];
  _mm_store_si128(
      reinterpret_cast<__m128i*>(sums),
      _mm_add_epi32(_mm256_castsi256_si128(halves), _mm256_extracti128_si256(halves, 1)));
  for (size_t j = 0; j < 4; ++j) {
    out[n + j] = row_result(p, row.head().row, sums[j] - excess<Dot>(row.head().sum), n + j);
  }
}

template <class Dot>
void few8(const CodedProduct& p, const Activations& x, size_t begin, size_t end) {
  const auto rows = static_cast<size_t>(p.matrix->rows);
  const FetchDistance ahead = fetch_ahead(1).stream;
  size_t n = begin;
  for (; n + 4 <= end; n += 4) {
    for (size_t i = 0; i < x.rows; ++i) {
      four_rows8<Dot>(p, x.row(i), x.columns, n, ahead, p.out + i * rows);
    }
  }
  for (; n < end; ++n) {
    for (size_t i = 0; i < x.rows; ++i) {
      const ActivationRow row = x.row(i);
      const int32_t sum =
          dot_row<Dot>(row_codes(*p.matrix, n), row.codes(), x.columns, row.head().sum, ahead);
      p.out[i * rows + n] = row_result(p, row.head().row, sum, n);
    }
  }
}

template <class Dot>
void code_sums(const CodedMatrix& m, size_t begin, size_t end, int32_t* sums) {
  const auto columns = static_cast<size_t>(m.columns);
  const FetchDistance ahead = fetch_ahead(1).stream;
  alignas(32) int8_t ones[64];
  __builtin_memset(ones, 1, sizeof ones);
  for (size_t n = begin; n < end; ++n) {
    int32_t sum = 0;
    for (size_t k = 0; k < columns; k += 64) {
      const size_t count = columns - k < 64 ? columns - k : 64;
      sum += dot_row<Dot>(row_codes(m, n) + k, ones, count, 64, ahead);
    }
    sums[n] = sum;
  }
}

}  // namespace
}  // namespace ferry::kernels
