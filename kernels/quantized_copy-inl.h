// Copies 8 rows of codes into a tile (quantized_many-inl.h) with AVX2.

namespace ferry::kernels {
namespace {

// Lane j of vector i becomes lane i of vector j.
inline void transpose(__m256i (&v)[8]) {
  __m256i a[8], b[8];
  for (size_t i = 0; i < 8; i += 2) {
    a[i] = _mm256_unpacklo_epi32(v[i], v[i + 1]);
    a[i + 1] = _mm256_unpackhi_epi32(v[i], v[i + 1]);
  }
  for (size_t i = 0; i < 8; i += 4) {
    for (size_t j = 0; j < 2; ++j) {
      b[i + 2 * j] = _mm256_unpacklo_epi64(a[i + j], a[i + j + 2]);
      b[i + 2 * j + 1] = _mm256_unpackhi_epi64(a[i + j], a[i + j + 2]);
    }
  }
  for (size_t i = 0; i < 4; ++i) {
    v[i] = _mm256_permute2x128_si256(b[i], b[i + 4], 0x20);
    v[i + 4] = _mm256_permute2x128_si256(b[i], b[i + 4], 0x31);
  }
}

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

inline void copy_rows4(const uint8_t* const* rows, size_t columns, size_t tile_rows,
                       std::byte* to) {
  const __m256i mask = _mm256_set1_epi8(15);
  const size_t step = 4 * tile_rows;
  for (size_t k = 0; k < columns; k += 64, to += 16 * step) {
    __m256i first[8], second[8];
    for (size_t i = 0; i < 8; ++i) {
      const __m256i v = row_bytes_at(rows[i], k / 2, columns / 2);
      const __m256i low = _mm256_and_si256(v, mask);
      const __m256i high = _mm256_and_si256(_mm256_srli_epi16(v, 4), mask);
      const __m256i a = _mm256_unpacklo_epi8(low, high), b = _mm256_unpackhi_epi8(low, high);
      first[i] = _mm256_permute2x128_si256(a, b, 0x20);
      second[i] = _mm256_permute2x128_si256(a, b, 0x31);
    }
    store_transposed(first, step, to);
    store_transposed(second, step, to + 8 * step);
  }
}

// Copies codes of 8 bits, xor `flip`.
inline void copy_rows8(const uint8_t* const* rows, size_t columns, size_t tile_rows, int8_t flip,
                       std::byte* to) {
  const size_t step = 4 * tile_rows;
  for (size_t k = 0; k < columns; k += 32, to += 8 * step) {
    __m256i v[8];
    for (size_t i = 0; i < 8; ++i) {
      v[i] = _mm256_xor_si256(row_bytes_at(rows[i], k, columns), _mm256_set1_epi8(flip));
    }
    store_transposed(v, step, to);
  }
}

// Copies codes of 8 bits as 16 bits.
inline void copy_wide_rows8(const uint8_t* const* rows, size_t columns, size_t tile_rows,
                            std::byte* to) {
  const size_t step = 4 * tile_rows;
  for (size_t k = 0; k < columns; k += 32, to += 16 * step) {
    __m256i first[8], second[8];
    for (size_t i = 0; i < 8; ++i) {
      const __m256i v = row_bytes_at(rows[i], k, columns);
      first[i] = _mm256_cvtepi8_epi16(_mm256_castsi256_si128(v));
      second[i] = _mm256_cvtepi8_epi16(_mm256_extracti128_si256(v, 1));
    }
    store_transposed(first, step, to);
    store_transposed(second, step, to + 8 * step);
  }
}

}  // namespace
}  // namespace ferry::kernels
