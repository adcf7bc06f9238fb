// The products of four rows of blocks of 256 nibbles (Q4_K, Q5_K) with few rows of rounded
// activations, for AVX-512 with VNNI. A vector holds 16 bytes of each of four groups of a row, and
// one transposition sums the products of four rows, as in block_nibble_rows-inl.h. The bits are
// those of block_products-inl.h.

// clang-format off
#if defined(FERRY_BLOCK_K_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FERRY_BLOCK_K_ROWS_INL_H_
#undef FERRY_BLOCK_K_ROWS_INL_H_
#else
#define FERRY_BLOCK_K_ROWS_INL_H_
#endif
// clang-format on

#include "kernels/block_nibble_rows-inl.h"

#if FERRY_BLOCK_VNNI == 512
FERRY_BLOCK_BEFORE();
namespace ferry::kernels {
namespace FERRY_BLOCK_NAMESPACE {

template <class T>
constexpr bool kIsK = false;
template <bool kFifth>
constexpr bool kIsK<NibblesK<kFifth>> = true;

// Numbers of the 8 groups of four rows. The lanes of `even` are those of group 0 for four rows,
// then of groups 2, 4 and 6; those of `odd` are of groups 1, 3, 5 and 7.
template <class V>
struct ByGroups {
  V even, odd;
};

// The codes of the even groups, or of the odd ones, of a row: columns 0 to 15 of each group, then
// columns 16 to 31.
struct GroupCodes {
  __m512i first, last;
};

// A block of four rows.
struct KStep {
  ByGroups<GroupCodes> codes[kRowsAtOnce];
  ByGroups<__m512> scale, offset;
};

// Adds 16 to the codes whose bit in `fifth` is set: bit `bit`, bit + 2, bit + 4 and bit + 6 for the
// four groups.
HWY_INLINE __m512i with_fifth_bits(__m512i codes, const uint8_t* fifth, int bit) {
  const __m512i bytes =
      _mm512_broadcast_i32x4(_mm_loadu_si128(reinterpret_cast<const __m128i*>(fifth)));
  const auto at = [&](int group) {
    return static_cast<long long>(0x0101010101010101ULL << (bit + group));
  };
  const __m512i bits = _mm512_setr_epi64(at(0), at(0), at(2), at(2), at(4), at(4), at(6), at(6));
  return _mm512_mask_add_epi8(codes, _mm512_test_epi8_mask(bytes, bits), codes,
                              _mm512_set1_epi8(16));
}

template <bool kFifth>
HWY_INLINE ByGroups<GroupCodes> k_codes(const uint8_t* p) {
  const __m512i fifteen = _mm512_set1_epi8(15);
  const uint8_t* nibbles = p + NibblesK<kFifth>::kBytes - 128;
  const __m512i a = _mm512_loadu_si512(nibbles), b = _mm512_loadu_si512(nibbles + 64);
  const __m512i first = _mm512_shuffle_i64x2(a, b, 0x88), last = _mm512_shuffle_i64x2(a, b, 0xdd);
  const auto high = [&](__m512i v) FERRY_BLOCK_ATTR {
    return _mm512_and_si512(_mm512_srli_epi16(v, 4), fifteen);
  };
  ByGroups<GroupCodes> codes = {{_mm512_and_si512(first, fifteen), _mm512_and_si512(last, fifteen)},
                                {high(first), high(last)}};
  if constexpr (kFifth) {
    codes.even = {with_fifth_bits(codes.even.first, p + 16, 0),
                  with_fifth_bits(codes.even.last, p + 32, 0)};
    codes.odd = {with_fifth_bits(codes.odd.first, p + 16, 1),
                 with_fifth_bits(codes.odd.last, p + 32, 1)};
  }
  return codes;
}

// Returns unit * factor for each group, of 6-bit factors whose bytes are word `word` of each row
// for groups 0 to 3, and the next word for groups 4 to 7.
HWY_INLINE ByGroups<__m512> k_numbers(__m512i factors, int word, __m512 unit) {
  const __m512i words =
      _mm512_add_epi32(_mm512_setr_epi32(0, 4, 8, 12, 0, 4, 8, 12, 1, 5, 9, 13, 1, 5, 9, 13),
                       _mm512_set1_epi32(word));
  const __m512i bytes = _mm512_permutexvar_epi32(words, factors);
  const auto numbers = [&](int shift) FERRY_BLOCK_ATTR {
    const __m512i shifts =
        _mm512_add_epi32(_mm512_setr_epi32(0, 0, 0, 0, 16, 16, 16, 16, 0, 0, 0, 0, 16, 16, 16, 16),
                         _mm512_set1_epi32(shift));
    const __m512i factor =
        _mm512_and_si512(_mm512_srlv_epi32(bytes, shifts), _mm512_set1_epi32(255));
    return _mm512_mul_ps(_mm512_cvtepi32_ps(factor), unit);
  };
  return {numbers(0), numbers(8)};
}

template <bool kFifth>
HWY_INLINE void unpack_k_step(const uint8_t* p, size_t row_bytes, KStep& step) {
  const auto head_of = [&](size_t row) FERRY_BLOCK_ATTR {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p + row * row_bytes));
  };
  // The f16 of scales and of minima, then the three words of the 6-bit factors.
  __m512i head = _mm512_castsi128_si512(head_of(0));
  head = _mm512_mask_broadcast_i32x4(head, 0x00f0, head_of(1));
  head = _mm512_mask_broadcast_i32x4(head, 0x0f00, head_of(2));
  head = _mm512_mask_broadcast_i32x4(head, 0xf000, head_of(3));
  const __m512i units = _mm512_permutexvar_epi32(
      _mm512_setr_epi32(0, 4, 8, 12, 0, 4, 8, 12, 0, 4, 8, 12, 0, 4, 8, 12), head);
  const __m512 unit = _mm512_cvtph_ps(_mm512_cvtepi32_epi16(units));
  const __m512 least = _mm512_cvtph_ps(_mm512_cvtepi32_epi16(_mm512_srli_epi32(units, 16)));
  // Words 0 and 1 become the scales of groups 0 to 3 and 4 to 7, and words 2 and 3 the minima.
  const __m512i low = _mm512_shuffle_epi32(head, _MM_PERM_CCBB);
  const __m512i high =
      _mm512_srlv_epi32(_mm512_shuffle_epi32(head, _MM_PERM_DDDD),
                        _mm512_setr_epi32(0, 0, 0, 4, 0, 0, 0, 4, 0, 0, 0, 4, 0, 0, 0, 4));
  const __m512i top =
      _mm512_slli_epi32(_mm512_and_si512(_mm512_srli_epi32(low, 6), _mm512_set1_epi8(3)), 4);
  const __m512i later = _mm512_or_si512(_mm512_and_si512(high, _mm512_set1_epi8(15)), top);
  const __m512i factors =
      _mm512_mask_mov_epi32(_mm512_and_si512(low, _mm512_set1_epi8(63)), 0xaaaa, later);
  step.scale = k_numbers(factors, 0, unit);
  step.offset = k_numbers(factors, 2, _mm512_xor_ps(least, _mm512_set1_ps(-0.0F)));
  for (size_t r = 0; r < kRowsAtOnce; ++r) step.codes[r] = k_codes<kFifth>(p + r * row_bytes);
}

// Returns the sums of products of codes. `x` points to the codes of 256 columns of activations.
HWY_INLINE ByGroups<__m512i> k_products(const KStep& step, const int8_t* x) {
  __m512i c[4];
  for (size_t i = 0; i < 4; ++i) c[i] = _mm512_loadu_si512(x + 64 * i);
  const __m512i a = _mm512_shuffle_i64x2(c[0], c[1], 0x88);
  const __m512i b = _mm512_shuffle_i64x2(c[2], c[3], 0x88);
  const __m512i d = _mm512_shuffle_i64x2(c[0], c[1], 0xdd);
  const __m512i e = _mm512_shuffle_i64x2(c[2], c[3], 0xdd);
  const ByGroups<GroupCodes> acts = {
      {_mm512_shuffle_i64x2(a, b, 0x88), _mm512_shuffle_i64x2(d, e, 0x88)},
      {_mm512_shuffle_i64x2(a, b, 0xdd), _mm512_shuffle_i64x2(d, e, 0xdd)}};
  __m512i even[kRowsAtOnce], odd[kRowsAtOnce];
  const auto sum = [](const GroupCodes& w, const GroupCodes& act) FERRY_BLOCK_ATTR {
    const __m512i first = _mm512_dpbusd_epi32(_mm512_setzero_si512(), w.first, act.first);
    return _mm512_dpbusd_epi32(first, w.last, act.last);
  };
  for (size_t r = 0; r < kRowsAtOnce; ++r) {
    even[r] = sum(step.codes[r].even, acts.even);
    odd[r] = sum(step.codes[r].odd, acts.odd);
  }
  return {sums_of_rows(even), sums_of_rows(odd)};
}

// Returns the numbers of groups of activations, four times each.
HWY_INLINE ByGroups<__m512> k_numbers_of(const float* numbers) {
  const __m512i index = _mm512_setr_epi32(0, 0, 0, 0, 2, 2, 2, 2, 4, 4, 4, 4, 6, 6, 6, 6);
  const __m512 all = _mm512_castps256_ps512(_mm256_loadu_ps(numbers));
  return {_mm512_permutexvar_ps(index, all),
          _mm512_permutexvar_ps(_mm512_add_epi32(index, _mm512_set1_epi32(1)), all)};
}

// Computes rows n to n + 3 of the matrix for `kActs` rows of activations from `first` on.
template <bool kFifth, size_t kActs>
HWY_INLINE void four_k_rows(const BlockProduct& p, size_t n, size_t first, FetchDistance ahead) {
  constexpr size_t kBytes = NibblesK<kFifth>::kBytes;
  const auto row_bytes = static_cast<size_t>(p.matrix.row_bytes());
  const size_t blocks = p.x.columns / kChunkColumns;
  const uint8_t *row = p.row(n), *fetched = row;
  ByGroups<__m512> sums[kActs];
  for (auto& sum : sums) sum.even = sum.odd = _mm512_setzero_ps();
  const auto add = [](__m512 sum, __m512i products, __m512 scale, __m512 act_scale, __m512 offset,
                      __m512 code_sum) FERRY_BLOCK_ATTR {
    sum = _mm512_fmadd_ps(_mm512_cvtepi32_ps(products), _mm512_mul_ps(scale, act_scale), sum);
    return _mm512_fmadd_ps(offset, code_sum, sum);
  };
  for (size_t block = 0; block < blocks; ++block, row += kBytes, fetched += kRowsAtOnce * kBytes) {
    fetch(fetched, ahead, kRowsAtOnce * kBytes);
    KStep step;
    unpack_k_step<kFifth>(row, row_bytes, step);
    for (size_t i = 0; i < kActs; ++i) {
      const float* numbers = p.x.numbers(first + i) + block * BlockActivations::kNumbers;
      const ByGroups<__m512i> products =
          k_products(step, p.x.codes(first + i) + block * kChunkColumns);
      const ByGroups<__m512> scale = k_numbers_of(numbers), code_sum = k_numbers_of(numbers + 8);
      sums[i].even = add(sums[i].even, products.even, step.scale.even, scale.even, step.offset.even,
                         code_sum.even);
      sums[i].odd =
          add(sums[i].odd, products.odd, step.scale.odd, scale.odd, step.offset.odd, code_sum.odd);
    }
  }
  for (size_t i = 0; i < kActs; ++i) {
    float* out = p.out + (first + i) * static_cast<size_t>(p.matrix.rows) + n;
    _mm_storeu_ps(out, _mm_add_ps(four_half_totals(sums[i].even), four_half_totals(sums[i].odd)));
  }
}

// Computes rows from `begin` on, and returns the first of those that are left of [begin, end).
template <class T>
size_t k_rows(const BlockProduct& p, size_t begin, size_t end) {
  constexpr bool kFifth = T::kMaxCode == 31;
  const size_t four = kRowsAtOnce * static_cast<size_t>(p.matrix.row_bytes());
  FetchDistance ahead = fetch_ahead(p.x.rows).blocks;
  // If the distance were less, the last of the four rows would be read before it is fetched.
  if (ahead.bytes != 0 && ahead.bytes < four) ahead.bytes = four;
  for (; begin + kRowsAtOnce <= end; begin += kRowsAtOnce) {
    size_t i = 0;
    for (; i + 4 <= p.x.rows; i += 4) four_k_rows<kFifth, 4>(p, begin, i, ahead);
    for (; i < p.x.rows; ++i) four_k_rows<kFifth, 1>(p, begin, i, ahead);
  }
  return begin;
}

}  // namespace FERRY_BLOCK_NAMESPACE
}  // namespace ferry::kernels
FERRY_BLOCK_AFTER();
#endif  // FERRY_BLOCK_VNNI

#endif  // FERRY_BLOCK_K_ROWS_INL_H_
