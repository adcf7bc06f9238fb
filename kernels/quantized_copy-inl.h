// Copies 8 rows of codes into a tile (quantized_many-inl.h) with AVX2.

#include "kernels/transpose_avx2.h"

namespace ferry::kernels {
namespace {

// Stores lanes of 8 rows to 8 places of the tile.
inline void store_transposed(__m256i (&v)[8], size_t step, std::byte* to) {
  transpose(v);
  for (size_t i = 0; i < 8; ++i) {
    _mm256_store_si256(reinterpret_cast<__m256i*>(to + i * step), v[i]);
  }
}

// Loads bytes [at, at + 32) of a row of `bytes` bytes, with zeros behind its end.
inline __m256i row_bytes_at(const uint8_t* row, size_t at, size_t bytes) {
  if (at + 32 <= bytes) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(row + at));
  }
  alignas(32) uint8_t rest[32] = {};
  if (at < bytes) __builtin_memcpy(rest, row + at, bytes - at);
  return _mm256_load_si256(reinterpret_cast<const __m256i*>(rest));
}

// Copies 8 rows of `bytes` bytes, 32 at a time: calls copy(v) with their vectors.
template <class Copy>
inline __attribute__((always_inline)) void copy_pieces(const uint8_t* const* rows, size_t bytes,
                                                       const Copy& copy) {
  const uint8_t* from[8];
  for (size_t i = 0; i < 8; ++i) from[i] = rows[i];
  __m256i v[8];
  size_t at = 0;
  for (; at + 32 <= bytes; at += 32) {
#pragma GCC unroll 8
    for (size_t i = 0; i < 8; ++i) {
      v[i] = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from[i] + at));
    }
    copy(v);
  }
  if (at == bytes) return;
  for (size_t i = 0; i < 8; ++i) v[i] = row_bytes_at(from[i], at, bytes);
  copy(v);
}

// Copies codes of 4 bits. In each 8 columns the even ones come first.
inline void copy_rows4(const uint8_t* const* rows, size_t columns, size_t tile_rows,
                       std::byte* to) {
  const __m256i mask = _mm256_set1_epi8(15);
  const size_t step = 4 * tile_rows;
  copy_pieces(
      rows, columns / 2, [&](__m256i(&v)[8]) __attribute__((always_inline)) {
        transpose(v);
#pragma GCC unroll 8
        for (size_t i = 0; i < 8; ++i, to += 2 * step) {
          const __m256i high = _mm256_and_si256(_mm256_srli_epi16(v[i], 4), mask);
          _mm256_store_si256(reinterpret_cast<__m256i*>(to), _mm256_and_si256(v[i], mask));
          _mm256_store_si256(reinterpret_cast<__m256i*>(to + step), high);
        }
      });
}

// Copies codes of 8 bits, xor `flip`.
inline void copy_rows8(const uint8_t* const* rows, size_t columns, size_t tile_rows, int8_t flip,
                       std::byte* to) {
  const size_t step = 4 * tile_rows;
  copy_pieces(
      rows, columns, [&](__m256i(&v)[8]) __attribute__((always_inline)) {
#pragma GCC unroll 8
        for (size_t i = 0; i < 8; ++i) v[i] = _mm256_xor_si256(v[i], _mm256_set1_epi8(flip));
        store_transposed(v, step, to);
        to += 8 * step;
      });
}

// Copies codes of 8 bits as 16 bits.
inline void copy_wide_rows8(const uint8_t* const* rows, size_t columns, size_t tile_rows,
                            std::byte* to) {
  const size_t step = 4 * tile_rows;
  copy_pieces(
      rows, columns, [&](__m256i(&v)[8]) __attribute__((always_inline)) {
        __m256i first[8], second[8];
#pragma GCC unroll 8
        for (size_t i = 0; i < 8; ++i) {
          first[i] = _mm256_cvtepi8_epi16(_mm256_castsi256_si128(v[i]));
          second[i] = _mm256_cvtepi8_epi16(_mm256_extracti128_si256(v[i], 1));
        }
        store_transposed(first, step, to);
        store_transposed(second, step, to + 8 * step);
        to += 16 * step;
      });
}

// Copies the scales of 8 rows, which have `groups` each.
template <bool kBf16>
inline void copy_scales8(const std::byte* const* rows, size_t groups, size_t tile_rows, float* to) {
  constexpr size_t kBytes = kBf16 ? 2 : 4;
  // The last eight are copied from where they begin, some of them once more: fewer than eight go
  // through memory.
  for (size_t next = 0; next < groups; next += 8) {
    const size_t g = groups < 8 || next + 8 <= groups ? next : groups - 8;
    const size_t count = groups < 8 ? groups : 8;
    __m256i v[8];
    for (size_t i = 0; i < 8; ++i) {
      const std::byte* from = rows[i] + g * kBytes;
      const __m256 scales =
          count == 8 ? eight_scales<kBf16>(from) : some_scales<kBf16>(from, count);
      v[i] = _mm256_castps_si256(scales);
    }
    transpose(v);
    for (size_t i = 0; i < count; ++i) {
      _mm256_store_ps(to + (g + i) * tile_rows, _mm256_castsi256_ps(v[i]));
    }
  }
}

// How a `Dot` of quantized_many-inl.h copies rows of codes of 4 bits, and scales.
struct CopiesEightRows {
  static constexpr size_t kCopied = 8;

  static const int8_t* codes4(const ActivationRow& row) { return row.split_eights(); }
  static void copy4(const uint8_t* const* rows, size_t columns, size_t tile_rows, std::byte* to) {
    copy_rows4(rows, columns, tile_rows, to);
  }
  static void copy_scales(const CodedMatrix& m, const std::byte* const* rows, size_t tile_rows,
                          float* to) {
    const size_t groups = Groups(m).count;
    if (m.scale_dtype == DType::kBF16) {
      copy_scales8<true>(rows, groups, tile_rows, to);
    } else {
      copy_scales8<false>(rows, groups, tile_rows, to);
    }
  }
};

}  // namespace
}  // namespace ferry::kernels
