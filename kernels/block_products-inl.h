// The products of blocks of GGUF files with few rows of rounded activations. Each row of the matrix
// is unpacked 256 columns at a time, and multiplied.

// clang-format off
#if defined(FERRY_BLOCK_PRODUCTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FERRY_BLOCK_PRODUCTS_INL_H_
#undef FERRY_BLOCK_PRODUCTS_INL_H_
#else
#define FERRY_BLOCK_PRODUCTS_INL_H_
#endif
// clang-format on

#include <cmath>
#include <utility>

#include "kernels/block_k_rows-inl.h"
#include "kernels/block_nibble_rows-inl.h"
#include "kernels/block_types-inl.h"
#include "kernels/block_vectors-inl.h"
#include "kernels/fetch_ahead.h"

FERRY_BLOCK_BEFORE();
namespace ferry::kernels {
namespace FERRY_BLOCK_NAMESPACE {

// Whether products with many rows have kernels of their own.
#undef FERRY_BLOCK_TILES
#if (HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2) || FERRY_BLOCK_NEON
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

using F8 = hn::CappedTag<float, 8>;
constexpr size_t kF8Lanes = hn::MaxLanes(F8());

// ---- few rows of activations

#if FERRY_BLOCK_NEON
// Returns the sums of the lanes of each vector.
HWY_INLINE int32x4_t four_sums(const int32x4_t* v) {
  return vpaddq_s32(vpaddq_s32(v[0], v[1]), vpaddq_s32(v[2], v[3]));
}

// group_sums(). Codes of no unsigned type exceed 127.
template <class T, size_t kGroups>
HWY_INLINE void group_sums_by_dots(const BlockChunk& c, const int8_t* x, int32_t* sums) {
  const int32x4_t zero = vdupq_n_s32(0);
  int32x4_t halves[2][kChunkGroups];
  for (size_t g = 0; g < kChunkGroups; ++g) {
    halves[0][g] = halves[1][g] = zero;
    if (g >= kGroups) continue;
    const auto* w = reinterpret_cast<const int8_t*>(c.codes) + kGroupColumns * g;
    const int8_t* a = x + kGroupColumns * g;
    halves[0][g] = vdotq_s32(zero, vld1q_s8(w), vld1q_s8(a));
    int32x4_t& second = T::kHalves ? halves[1][g] : halves[0][g];
    second = vdotq_s32(second, vld1q_s8(w + 16), vld1q_s8(a + 16));
  }
  for (size_t g = 0; g < kChunkGroups; g += 4) {
    int32x4_t sum = four_sums(halves[0] + g);
    if constexpr (T::kHalves) {
      const int16x4x2_t scales = vld2_s16(c.half + 2 * g);
      sum = vmulq_s32(sum, vmovl_s16(scales.val[0]));
      sum = vmlaq_s32(sum, four_sums(halves[1] + g), vmovl_s16(scales.val[1]));
    }
    vst1q_s32(sums + g, sum);
  }
}
#elif FERRY_BLOCK_TILES
// Returns the sums of the products of four pairs of bytes.
HWY_INLINE __m256i sums_of_four(__m256i u, __m256i s) {
#if FERRY_BLOCK_VNNI
  return add_sums_of_four(_mm256_setzero_si256(), u, s);
#else
  return _mm256_madd_epi16(_mm256_maddubs_epi16(u, s), _mm256_set1_epi16(1));
#endif
}
#endif

// Computes the sum of products of codes of each of kGroups groups; those of the others are 0. With
// halves, the products of 16 columns are multiplied with the scale of the half.
template <class T, size_t kGroups>
HWY_INLINE void group_sums(const BlockChunk& c, const int8_t* x, int32_t* sums) {
#if FERRY_BLOCK_NEON
  group_sums_by_dots<T, kGroups>(c, x, sums);
#elif FERRY_BLOCK_TILES
  __m256i group[kChunkGroups];
  for (size_t g = 0; g < kChunkGroups; ++g) {
    if (g >= kGroups) {
      group[g] = _mm256_setzero_si256();
      continue;
    }
    __m256i w = _mm256_load_si256(reinterpret_cast<const __m256i*>(c.codes) + g);
    __m256i a = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(x) + g);
    if constexpr (T::kSigned) {
      a = _mm256_sign_epi8(a, w);
      w = _mm256_abs_epi8(w);
    }
    group[g] = sums_of_four(w, a);
  }
  const __m256i low = _mm256_hadd_epi32(_mm256_hadd_epi32(group[0], group[1]),
                                        _mm256_hadd_epi32(group[2], group[3]));
  const __m256i high = _mm256_hadd_epi32(_mm256_hadd_epi32(group[4], group[5]),
                                         _mm256_hadd_epi32(group[6], group[7]));
  // The sums of the first half of each group, and of the second.
  __m256i first = _mm256_permute2x128_si256(low, high, 0x20);
  __m256i second = _mm256_permute2x128_si256(low, high, 0x31);
  if constexpr (T::kHalves) {
    const __m256i scales = _mm256_load_si256(reinterpret_cast<const __m256i*>(c.half));
    first = _mm256_mullo_epi32(first, _mm256_srai_epi32(_mm256_slli_epi32(scales, 16), 16));
    second = _mm256_mullo_epi32(second, _mm256_srai_epi32(scales, 16));
  }
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(sums), _mm256_add_epi32(first, second));
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
    const size_t left = std::exchange(blocks, 0);
    // Rows are often whole heads of 64 columns.
    if constexpr (T::kElements == kGroupColumns) {
      if (left == 2) return T::unpack(p, Whole<2>(), c);
      if (left == 4) return T::unpack(p, Whole<4>(), c);
      if (left == 6) return T::unpack(p, Whole<6>(), c);
    }
    T::unpack(p, left, c);  // other scales become 0
  }
  void next(BlockChunk& c) { has_whole() ? next_whole(c) : next_part(c); }
};

// Adds the products of a row of a matrix with kRows rows of activations to 8 partial sums for each.
template <class T, size_t kRows>
HWY_INLINE void add_row(const BlockProduct& p, RowReader<T> row, size_t first, FetchDistance ahead,
                        float* sums) {
  const int8_t* codes[kRows];
  const float* numbers[kRows];
  for (size_t i = 0; i < kRows; ++i) {
    codes[i] = p.x.codes(first + i);
    numbers[i] = p.x.numbers(first + i);
  }
  HWY_ALIGN BlockChunk c;
  HWY_ALIGN float offsets[2][kChunkGroups];
  const auto add = [&]<size_t kGroups>(Whole<kGroups>) FERRY_BLOCK_ATTR {
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
  const FetchAhead& distances = fetch_ahead(1);
  const FetchDistance ahead = T::kElements == kChunkColumns ? distances.blocks : distances.stream;
  const size_t blocks = p.x.columns / T::kElements;
#if FERRY_BLOCK_VNNI == 512
  if constexpr (kIsNibbles<T>) begin = nibble_rows<T>(p, begin, end);
  if constexpr (kIsK<T>) begin = k_rows<T>(p, begin, end);
#endif
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

}  // namespace FERRY_BLOCK_NAMESPACE
}  // namespace ferry::kernels
FERRY_BLOCK_AFTER();

#endif  // FERRY_BLOCK_PRODUCTS_INL_H_
