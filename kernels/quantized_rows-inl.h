// Rows of activations, quantised into the forms that products with codes read
// (quantized_kernels.h), with AVX2. quantized_x86-inl.h includes this file.

namespace ferry::kernels {
namespace {

struct Extremes {
  float low, high;
  bool finite;
};

inline float fold(__m256 v, bool greatest) {
  alignas(32) float lanes[8];
  _mm256_store_ps(lanes, v);
  float best = lanes[0];
  for (const float x : lanes) best = (greatest ? x > best : x < best) ? x : best;
  return best;
}

inline Extremes extremes(const float* x, size_t n) {
  __m256 low = _mm256_setzero_ps(), high = low;
  const __m256i exponent = _mm256_set1_epi32(0x7f800000);
  __m256i special = _mm256_setzero_si256();
  size_t i = 0;
  for (; i + 8 <= n; i += 8) {
    const __m256 v = _mm256_loadu_ps(x + i);
    low = _mm256_min_ps(v, low);
    high = _mm256_max_ps(v, high);
    const __m256i bits = _mm256_and_si256(_mm256_castps_si256(v), exponent);
    special = _mm256_or_si256(special, _mm256_cmpeq_epi32(bits, exponent));
  }
  Extremes e{fold(low, false), fold(high, true), _mm256_testz_si256(special, special) != 0};
  for (; i < n; ++i) {
    e.low = x[i] < e.low ? x[i] : e.low;
    e.high = x[i] > e.high ? x[i] : e.high;
    e.finite &= x[i] - x[i] == 0;
  }
  return e;
}

inline __m256i code_lanes(const float* x, __m256 factor, __m256i zero_point) {
  const __m256i rounded = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x), factor));
  return _mm256_add_epi32(rounded, zero_point);
}

// Quantises 32 values to codes.
inline __m256i code_block(const float* x, __m256 factor, __m256i zero_point) {
  const __m256i a = code_lanes(x, factor, zero_point), b = code_lanes(x + 8, factor, zero_point);
  const __m256i c = code_lanes(x + 16, factor, zero_point),
                d = code_lanes(x + 24, factor, zero_point);
  const __m256i packed = _mm256_packs_epi16(_mm256_packs_epi32(a, b), _mm256_packs_epi32(c, d));
  return _mm256_permutevar8x32_epi32(packed, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}

inline void store_codes(const float* x, size_t n, const RowScale& scale, int8_t* codes) {
  const __m256 factor = _mm256_set1_ps(scale.factor);
  const __m256i zero_point = _mm256_set1_epi32(scale.zero_point);
  size_t i = 0;
  for (; i + 32 <= n; i += 32) {
    _mm256_store_si256(reinterpret_cast<__m256i*>(codes + i),
                       code_block(x + i, factor, zero_point));
  }
  if (i == n) return;
  alignas(32) float rest[32] = {};
  alignas(32) int8_t last[32];
  __builtin_memcpy(rest, x + i, (n - i) * sizeof(float));
  _mm256_store_si256(reinterpret_cast<__m256i*>(last), code_block(rest, factor, zero_point));
  __builtin_memcpy(codes + i, last, n - i);
}

// Splits both halves of a vector: first the even bytes, then the odd ones.
inline __m256i split_bytes(const int8_t* codes) {
  const __m256i order = _mm256_setr_epi8(0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15, 0, 2,
                                         4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15);
  const __m256i v = _mm256_load_si256(reinterpret_cast<const __m256i*>(codes));
  return _mm256_permute4x64_epi64(_mm256_shuffle_epi8(v, order), 0xd8);
}

inline void split_row(const ActivationRow& row) {
  const __m256i ones = _mm256_set1_epi8(1), eight = _mm256_set1_epi16(-8);
  for (size_t k = 0; k < row.padded; k += 64) {
    const __m256i a = split_bytes(row.codes() + k), b = split_bytes(row.codes() + k + 32);
    const __m256i even = _mm256_permute2x128_si256(a, b, 0x20);
    const __m256i odd = _mm256_permute2x128_si256(a, b, 0x31);
    auto* split = reinterpret_cast<__m256i*>(row.split_codes() + k - k % kSplitColumns / 2);
    _mm256_store_si256(split, even);
    _mm256_store_si256(split + 2, odd);
    const __m256i pairs =
        _mm256_add_epi16(_mm256_maddubs_epi16(ones, even), _mm256_maddubs_epi16(ones, odd));
    _mm256_store_si256(reinterpret_cast<__m256i*>(row.split_offsets() + k / 8),
                       _mm256_madd_epi16(pairs, eight));
  }
}

// In each 8 codes puts those of even columns first.
inline void split_eights_of(const ActivationRow& row) {
  const __m256i order = _mm256_setr_epi8(0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15, 0, 2,
                                         4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15);
  for (size_t k = 0; k < row.padded; k += 32) {
    const __m256i v = _mm256_load_si256(reinterpret_cast<const __m256i*>(row.codes() + k));
    _mm256_store_si256(reinterpret_cast<__m256i*>(row.split_eights() + k),
                       _mm256_shuffle_epi8(v, order));
  }
}

inline __m256i four_sums(__m256i a, __m256i b, __m256i c, __m256i d) {
  return _mm256_hadd_epi32(_mm256_hadd_epi32(a, b), _mm256_hadd_epi32(c, d));
}

// Returns the sum of the lanes of each of 8 vectors.
inline __m256i sums_of_lanes(const __m256i (&v)[8]) {
  const __m256i low = four_sums(v[0], v[1], v[2], v[3]), high = four_sums(v[4], v[5], v[6], v[7]);
  return _mm256_add_epi32(_mm256_permute2x128_si256(low, high, 0x20),
                          _mm256_permute2x128_si256(low, high, 0x31));
}

// Computes row.block_offsets() and the sum of the codes, 8 blocks of 32 codes at a time.
inline void sum_blocks_of(const ActivationRow& row) {
  const __m256i ones = _mm256_set1_epi8(1), ones16 = _mm256_set1_epi16(1);
  __m256i total = _mm256_setzero_si256();
  for (size_t k = 0; k < row.padded; k += kPaddedColumns) {
    __m256i sums[8];
#pragma GCC unroll 8
    for (size_t b = 0; b < 8; ++b) {
      const auto* codes = reinterpret_cast<const __m256i*>(row.codes() + k + b * kBlockColumns);
      sums[b] = _mm256_madd_epi16(_mm256_maddubs_epi16(ones, _mm256_load_si256(codes)), ones16);
    }
    const __m256i blocks = sums_of_lanes(sums);
    total = _mm256_add_epi32(total, blocks);
    _mm256_store_si256(reinterpret_cast<__m256i*>(row.block_offsets() + k / kBlockColumns),
                       _mm256_sub_epi32(_mm256_setzero_si256(), _mm256_slli_epi32(blocks, 3)));
  }
  alignas(32) int32_t lanes[8];
  _mm256_store_si256(reinterpret_cast<__m256i*>(lanes), total);
  int32_t sum = 0;
  for (const int32_t lane : lanes) sum += lane;
  row.head().sum = sum;
}

template <class Dot>
void quantize_slot(const float* x, size_t columns, bool few, const ActivationRow& row) {
  const Extremes e = extremes(x, columns);
  const RowScale scale = row_scale(e.low, e.high, e.finite);
  row.head().row = scale.row;
  int8_t* codes = row.codes();
  __builtin_memset(codes + columns, 0, row.padded - columns);
  if (scale.factor == 0) {
    __builtin_memset(codes, 0, columns);
  } else {
    store_codes(x, columns, scale, codes);
  }
  sum_blocks_of(row);
  split_eights_of(row);  // a matrix whose groups few4 does not support has them in both cases
  if (few) return split_row(row);
  if constexpr (Dot::kPairs) widen_codes(row);  // the others multiply the codes as they are
}

}  // namespace
}  // namespace ferry::kernels
