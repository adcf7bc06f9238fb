// The products of four rows of blocks of 32 nibbles (Q4_0, Q4_1, Q5_0, Q5_1) with few rows of
// rounded activations, for AVX-512 with VNNI. A vector holds 16 bytes of each of four blocks, so
// that one transposition sums the products of four groups of four rows: row by row, unpacking and
// summing take three times as many instructions as the products. The bits are those of
// block_products-inl.h.

// clang-format off
#if defined(FERRY_BLOCK_NIBBLE_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FERRY_BLOCK_NIBBLE_ROWS_INL_H_
#undef FERRY_BLOCK_NIBBLE_ROWS_INL_H_
#else
#define FERRY_BLOCK_NIBBLE_ROWS_INL_H_
#endif
// clang-format on

#include <array>

#include "kernels/block_product.h"
#include "kernels/block_types-inl.h"
#include "kernels/fetch_ahead.h"

#if FERRY_BLOCK_VNNI == 512
FERRY_BLOCK_BEFORE();
namespace ferry::kernels {
namespace FERRY_BLOCK_NAMESPACE {

constexpr size_t kStepBlocks = 4, kRowsAtOnce = 4;

// Whether rows of this type are multiplied four at once.
template <class T>
constexpr bool kIsNibbles = false;
template <int kZero, bool kMinima, bool kFifth>
constexpr bool kIsNibbles<Nibbles32<kZero, kMinima, kFifth>> = true;

// The bytes of up to four blocks of a row, as words. The bytes of four blocks are more than a
// vector: `last` holds the last 64 of them.
struct BlockWords {
  __m512i first, last;
};

using WordIndex = std::array<uint16_t, 32>;

// Where the words of four blocks of T are in a BlockWords.
template <class T>
struct WordsOf {
  static constexpr size_t kWords = T::kBytes / 2, kLast = kStepBlocks * kWords - 32;

  static constexpr uint16_t place(size_t block, size_t word) {
    const size_t at = block * kWords + word;
    return static_cast<uint16_t>(at < 32 ? at : at - kLast + 32);
  }
  // The 8 words with the nibbles of each block.
  static constexpr WordIndex nibbles() {
    WordIndex index = {};
    for (size_t i = 0; i < 32; ++i) index[i] = place(i / 8, kWords - 8 + i % 8);
    return index;
  }
  // Word `word` of each block, four times: for each row.
  static constexpr WordIndex by_row(size_t word) {
    WordIndex index = {};
    for (size_t i = 0; i < 16; ++i) index[i] = place(i / 4, word);
    return index;
  }
  // The words with the fifth bits of columns 0 to 15 of each block, then those of columns 16 to 31.
  static constexpr WordIndex fifths() {
    WordIndex index = {};
    for (size_t i = 0; i < 8; ++i) index[i] = place(i % 4, T::kHead / 2 + i / 4);
    return index;
  }
};

HWY_INLINE __m512i load_index(const WordIndex& index) { return _mm512_load_si512(index.data()); }

// Loads the words of `blocks` blocks; those of others are 0.
template <class T>
HWY_INLINE BlockWords load_words(const uint8_t* p, size_t blocks) {
  constexpr size_t kLast = kStepBlocks * T::kBytes - 64;
  if (blocks == kStepBlocks) return {_mm512_loadu_si512(p), _mm512_loadu_si512(p + kLast)};
  const size_t bytes = blocks * T::kBytes;
  const auto mask = [](size_t n) { return n >= 64 ? ~uint64_t{0} : (uint64_t{1} << n) - 1; };
  return {_mm512_maskz_loadu_epi8(mask(bytes), p),
          _mm512_maskz_loadu_epi8(bytes > kLast ? mask(bytes - kLast) : 0, p + kLast)};
}

// Four blocks of four rows. Each code is a byte of `low` (columns 0 to 15 of the blocks) or `high`
// (16 to 31). The numbers have four lanes for each block: one for each row.
struct NibbleStep {
  __m512i low[kRowsAtOnce], high[kRowsAtOnce];
  __m512 scale, offset;
};

template <class T>
HWY_INLINE void unpack_step(const uint8_t* p, size_t row_bytes, size_t blocks, NibbleStep& step) {
  alignas(64) static constexpr WordIndex kNibbles = WordsOf<T>::nibbles();
  alignas(64) static constexpr WordIndex kScales = WordsOf<T>::by_row(0);
  alignas(64) static constexpr WordIndex kMinima = WordsOf<T>::by_row(1);
  alignas(64) static constexpr WordIndex kFifths = WordsOf<T>::fifths();
  const __m512i fifteen = _mm512_set1_epi8(15);
  __m512i scales = _mm512_setzero_si512(), minima = scales;
  for (size_t r = 0; r < kRowsAtOnce; ++r) {
    const BlockWords words = load_words<T>(p + r * row_bytes, blocks);
    const auto pick = [&](const WordIndex& index) FERRY_BLOCK_ATTR {
      return _mm512_permutex2var_epi16(words.first, load_index(index), words.last);
    };
    const auto of_row = static_cast<__mmask32>(0x1111u << r);
    scales = _mm512_mask_mov_epi16(scales, of_row, pick(kScales));
    if constexpr (T::kMinima) minima = _mm512_mask_mov_epi16(minima, of_row, pick(kMinima));
    const __m512i bytes = pick(kNibbles);
    step.low[r] = _mm512_and_si512(bytes, fifteen);
    step.high[r] = _mm512_and_si512(_mm512_srli_epi16(bytes, 4), fifteen);
    if constexpr (T::kMaxCode == 31) {
      const __m128i bits = _mm512_castsi512_si128(pick(kFifths));
      const __m512i sixteen = _mm512_set1_epi8(16);
      const auto add = [&](__m512i codes, int64_t where) FERRY_BLOCK_ATTR {
        return _mm512_mask_add_epi8(codes, static_cast<__mmask64>(where), codes, sixteen);
      };
      step.low[r] = add(step.low[r], _mm_cvtsi128_si64(bits));
      step.high[r] = add(step.high[r], _mm_extract_epi64(bits, 1));
    }
  }
  step.scale = _mm512_cvtph_ps(_mm512_castsi512_si256(scales));
  step.offset = T::kMinima ? _mm512_cvtph_ps(_mm512_castsi512_si256(minima)) : _mm512_setzero_ps();
  if constexpr (T::kZero != 0) {
    const __m512 zero = _mm512_set1_ps(-static_cast<float>(T::kZero));
    step.offset = _mm512_fmadd_ps(step.scale, zero, step.offset);
  }
}

// Returns the sums of four lanes of each row for each of the four parts of a vector.
HWY_INLINE __m512i sums_of_rows(const __m512i (&rows)[kRowsAtOnce]) {
  const auto sums_of_lanes = [](__m512i u, __m512i v) FERRY_BLOCK_ATTR {
    return _mm512_add_epi32(_mm512_unpacklo_epi32(u, v), _mm512_unpackhi_epi32(u, v));
  };
  const __m512i even = sums_of_lanes(rows[0], rows[2]), odd = sums_of_lanes(rows[1], rows[3]);
  return sums_of_lanes(even, odd);
}

// Returns the sums of products of codes, in the order of NibbleStep::scale. `x` points to the codes
// of 128 columns of activations.
HWY_INLINE __m512i step_products(const NibbleStep& step, const int8_t* x) {
  const __m512i a = _mm512_loadu_si512(x), b = _mm512_loadu_si512(x + 64);
  const __m512i low = _mm512_shuffle_i64x2(a, b, 0x88), high = _mm512_shuffle_i64x2(a, b, 0xdd);
  __m512i rows[kRowsAtOnce];
  for (size_t r = 0; r < kRowsAtOnce; ++r) {
    const __m512i first = _mm512_dpbusd_epi32(_mm512_setzero_si512(), step.low[r], low);
    rows[r] = _mm512_dpbusd_epi32(first, step.high[r], high);
  }
  return sums_of_rows(rows);
}

// Returns four numbers of activations, four times each.
HWY_INLINE __m512 four_times_each(const float* numbers) {
  const __m512i index = _mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3);
  return _mm512_permutexvar_ps(index, _mm512_castps128_ps512(_mm_loadu_ps(numbers)));
}

// Returns the sums of four rows from those of four groups of each: (0 + 2) + (1 + 3).
HWY_INLINE __m128 four_half_totals(__m512 sum) {
  const __m256 low = _mm512_castps512_ps256(sum), high = _mm512_extractf32x8_ps(sum, 1);
  const __m256 pair = _mm256_add_ps(low, high);
  return _mm_add_ps(_mm256_castps256_ps128(pair), _mm256_extractf128_ps(pair, 1));
}

// Returns the sums of four rows from those of the groups of each, added like total().
HWY_INLINE __m128 four_totals(const __m512 (&sums)[2]) {
  return four_half_totals(_mm512_add_ps(sums[0], sums[1]));
}

// Computes rows n to n + 3 of the matrix for `kActs` rows of activations from `first` on. Fetches
// the bytes at `ahead` behind those that it reads.
template <class T, size_t kActs>
HWY_INLINE void four_rows(const BlockProduct& p, size_t n, size_t first, FetchDistance ahead) {
  const auto row_bytes = static_cast<size_t>(p.matrix.row_bytes());
  const size_t blocks = p.x.columns / T::kElements;
  const uint8_t *row = p.row(n), *fetched = row;
  __m512 sums[kActs][2];
  for (auto& sum : sums) sum[0] = sum[1] = _mm512_setzero_ps();
  const auto add = [&](size_t block, size_t count, size_t half) FERRY_BLOCK_ATTR {
    NibbleStep step;
    unpack_step<T>(row + block * T::kBytes, row_bytes, count, step);
    for (size_t i = 0; i < kActs; ++i) {
      const float* numbers =
          p.x.numbers(first + i) + block / kChunkGroups * BlockActivations::kNumbers + 4 * half;
      const __m512i products = step_products(step, p.x.codes(first + i) + block * kGroupColumns);
      const __m512 scale = _mm512_mul_ps(step.scale, four_times_each(numbers));
      __m512& sum = sums[i][half];
      sum = _mm512_fmadd_ps(_mm512_cvtepi32_ps(products), scale, sum);
      sum = _mm512_fmadd_ps(step.offset, four_times_each(numbers + 8), sum);
    }
  };
  size_t block = 0;
  for (; block + kChunkGroups <= blocks; block += kChunkGroups) {
    constexpr size_t kBytes = kRowsAtOnce * kChunkGroups * T::kBytes;
    fetch(fetched, ahead, kBytes);
    fetched += kBytes;
    add(block, kStepBlocks, 0);
    add(block + kStepBlocks, kStepBlocks, 1);
  }
  if (block + kStepBlocks <= blocks) {
    add(block, kStepBlocks, 0);
    block += kStepBlocks;
    if (block < blocks) add(block, blocks - block, 1);
  } else if (block < blocks) {
    add(block, blocks - block, 0);
  }
  for (size_t i = 0; i < kActs; ++i) {
    float* out = p.out + (first + i) * static_cast<size_t>(p.matrix.rows) + n;
    _mm_storeu_ps(out, four_totals(sums[i]));
  }
}

// Computes rows from `begin` on, and returns the first of those that are left of [begin, end).
template <class T>
size_t nibble_rows(const BlockProduct& p, size_t begin, size_t end) {
  const FetchDistance ahead =
      fetch_ahead(p.x.rows).four_rows(kRowsAtOnce * static_cast<size_t>(p.matrix.row_bytes()));
  for (; begin + kRowsAtOnce <= end; begin += kRowsAtOnce) {
    size_t i = 0;
    for (; i + 4 <= p.x.rows; i += 4) four_rows<T, 4>(p, begin, i, ahead);
    for (; i < p.x.rows; ++i) four_rows<T, 1>(p, begin, i, ahead);
  }
  return begin;
}

}  // namespace FERRY_BLOCK_NAMESPACE
}  // namespace ferry::kernels
FERRY_BLOCK_AFTER();
#endif  // FERRY_BLOCK_VNNI

#endif  // FERRY_BLOCK_NIBBLE_ROWS_INL_H_
