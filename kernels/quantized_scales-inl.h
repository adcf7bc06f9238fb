// Loads of the scales of groups of codes, in bf16 or f32, as vectors of 8 numbers.
// quantized_x86-inl.h includes this file.

namespace ferry::kernels {
namespace {

template <bool kBf16>
inline __m256 eight_scales(const std::byte* scales) {
  if constexpr (!kBf16) return _mm256_loadu_ps(reinterpret_cast<const float*>(scales));
  const __m128i bits = _mm_loadu_si128(reinterpret_cast<const __m128i*>(scales));
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
}

// Loads fewer than 8 scales. The others are 0.
template <bool kBf16>
inline __m256 some_scales(const std::byte* scales, size_t count) {
  alignas(32) std::byte rest[32] = {};
  __builtin_memcpy(rest, scales, count * (kBf16 ? 2 : 4));
  return eight_scales<kBf16>(rest);
}

// Loads 2 kPairs scales. The others are 0.
template <bool kBf16, size_t kPairs>
inline __m256 pairs_of_scales(const std::byte* scales) {
  constexpr size_t kCount = 2 * kPairs, kQuads = kCount / 4 * 4;
  if constexpr (kBf16) {
    __m128i bits = _mm_setzero_si128();
    if constexpr (kQuads > 0) bits = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(scales));
    if constexpr (kCount > kQuads) {
      int32_t last;
      __builtin_memcpy(&last, scales + 2 * kQuads, sizeof last);
      bits = kQuads == 0 ? _mm_cvtsi32_si128(last) : _mm_insert_epi32(bits, last, 2);
    }
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
  } else {
    const auto* p = reinterpret_cast<const float*>(scales);
    const auto two = [](const float* at) {
      return _mm_castpd_ps(_mm_load_sd(reinterpret_cast<const double*>(at)));
    };
    if constexpr (kPairs == 1) return _mm256_zextps128_ps256(two(p));
    if constexpr (kPairs == 2) return _mm256_zextps128_ps256(_mm_loadu_ps(p));
    return _mm256_setr_m128(_mm_loadu_ps(p), two(p + 4));
  }
}

}  // namespace
}  // namespace ferry::kernels
