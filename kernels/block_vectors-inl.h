// The vectors of products of blocks of GGUF files with many rows: each holds a number of each row
// of a tile, or of some of them. The instructions that products may use choose their width.

// clang-format off
#if defined(FERRY_BLOCK_VECTORS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FERRY_BLOCK_VECTORS_INL_H_
#undef FERRY_BLOCK_VECTORS_INL_H_
#else
#define FERRY_BLOCK_VECTORS_INL_H_
#endif
// clang-format on

#include "kernels/block_types-inl.h"

FERRY_BLOCK_BEFORE();
namespace ferry::kernels {
namespace FERRY_BLOCK_NAMESPACE {

constexpr size_t kTileRows = 16;

#if FERRY_BLOCK_NEON
constexpr size_t kTileVectors = 4, kMostActs = 4;
using TileFloats = float32x4_t;
using TileInts = int32x4_t;

HWY_INLINE TileFloats load_floats(const float* p) { return vld1q_f32(p); }
HWY_INLINE void store_floats(float* p, TileFloats v) { vst1q_f32(p, v); }
HWY_INLINE TileFloats every(float x) { return vdupq_n_f32(x); }
HWY_INLINE TileFloats as_floats(TileInts v) { return vcvtq_f32_s32(v); }
HWY_INLINE TileFloats plus(TileFloats a, TileFloats b) { return vaddq_f32(a, b); }
HWY_INLINE TileFloats times(TileFloats a, TileFloats b) { return vmulq_f32(a, b); }
HWY_INLINE TileFloats fused(TileFloats a, TileFloats b, TileFloats c) { return vfmaq_f32(c, a, b); }
HWY_INLINE TileInts load_ints(const void* p) { return vld1q_s32(static_cast<const int32_t*>(p)); }
HWY_INLINE TileInts every(int32_t x) { return vdupq_n_s32(x); }
HWY_INLINE TileInts plus(TileInts a, TileInts b) { return vaddq_s32(a, b); }
HWY_INLINE TileInts times(TileInts a, TileInts b) { return vmulq_s32(a, b); }
HWY_INLINE TileInts high_halves(TileInts v) { return vshrq_n_s32(v, 16); }
HWY_INLINE TileInts add_sums_of_four(TileInts sum, TileInts w, TileInts x) {
  return vdotq_s32(sum, vreinterpretq_s8_s32(w), vreinterpretq_s8_s32(x));
}
#elif FERRY_BLOCK_VNNI == 512
constexpr size_t kTileVectors = 1, kMostActs = 8;
using TileFloats = __m512;
using TileInts = __m512i;

HWY_INLINE TileFloats load_floats(const float* p) { return _mm512_load_ps(p); }
HWY_INLINE void store_floats(float* p, TileFloats v) { _mm512_store_ps(p, v); }
HWY_INLINE TileFloats every(float x) { return _mm512_set1_ps(x); }
HWY_INLINE TileFloats as_floats(TileInts v) { return _mm512_cvtepi32_ps(v); }
HWY_INLINE TileFloats plus(TileFloats a, TileFloats b) { return _mm512_add_ps(a, b); }
HWY_INLINE TileFloats times(TileFloats a, TileFloats b) { return _mm512_mul_ps(a, b); }
HWY_INLINE TileFloats fused(TileFloats a, TileFloats b, TileFloats c) {
  return _mm512_fmadd_ps(a, b, c);
}
HWY_INLINE TileInts load_ints(const void* p) { return _mm512_load_si512(p); }
HWY_INLINE TileInts every(int32_t x) { return _mm512_set1_epi32(x); }
HWY_INLINE TileInts plus(TileInts a, TileInts b) { return _mm512_add_epi32(a, b); }
HWY_INLINE TileInts times(TileInts a, TileInts b) { return _mm512_mullo_epi32(a, b); }
HWY_INLINE TileInts high_halves(TileInts v) { return _mm512_srai_epi32(v, 16); }
// Adds the sums of the products of four unsigned and four signed bytes.
HWY_INLINE TileInts add_sums_of_four(TileInts sum, TileInts u, TileInts s) {
  return _mm512_dpbusd_epi32(sum, u, s);
}
HWY_INLINE __m256i add_sums_of_four(__m256i sum, __m256i u, __m256i s) {
  return _mm256_dpbusd_epi32(sum, u, s);
}
#elif HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2
constexpr size_t kTileVectors = 2, kMostActs = 4;
using TileFloats = __m256;
using TileInts = __m256i;

HWY_INLINE TileFloats load_floats(const float* p) { return _mm256_load_ps(p); }
HWY_INLINE void store_floats(float* p, TileFloats v) { _mm256_store_ps(p, v); }
HWY_INLINE TileFloats every(float x) { return _mm256_set1_ps(x); }
HWY_INLINE TileFloats as_floats(TileInts v) { return _mm256_cvtepi32_ps(v); }
HWY_INLINE TileFloats plus(TileFloats a, TileFloats b) { return _mm256_add_ps(a, b); }
HWY_INLINE TileFloats times(TileFloats a, TileFloats b) { return _mm256_mul_ps(a, b); }
HWY_INLINE TileFloats fused(TileFloats a, TileFloats b, TileFloats c) {
  return _mm256_fmadd_ps(a, b, c);
}
HWY_INLINE TileInts load_ints(const void* p) {
  return _mm256_load_si256(static_cast<const __m256i*>(p));
}
HWY_INLINE TileInts every(int32_t x) { return _mm256_set1_epi32(x); }
// Without this, GCC makes a tree of a chain of sums, which needs more registers than there are.
HWY_INLINE void keep(TileInts& v) { asm("" : "+x"(v)); }
#if FERRY_BLOCK_VNNI == 256
HWY_INLINE TileInts plus(TileInts a, TileInts b) { return _mm256_add_epi32(a, b); }
HWY_INLINE TileInts times(TileInts a, TileInts b) { return _mm256_mullo_epi32(a, b); }
HWY_INLINE TileInts high_halves(TileInts v) { return _mm256_srai_epi32(v, 16); }
HWY_INLINE TileInts add_sums_of_four(TileInts sum, TileInts u, TileInts s) {
  return FERRY_BLOCK_DPBUSD(sum, u, s);
}
#endif
#endif

#if FERRY_BLOCK_NEON || (HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2)
constexpr size_t kVectorRows = kTileRows / kTileVectors;
constexpr size_t kVectorCodes = 4 * kVectorRows;
#endif

// The codes of a row that follow each other in a tile. Signed codes get kShiftedSigns added, so
// that they are the unsigned operand of a product.
#if FERRY_BLOCK_NEON == 2
using Run = uint64_t;
#else
using Run = uint32_t;
#endif
#if FERRY_BLOCK_VNNI
constexpr Run kShiftedSigns = 0x80808080;
#else
constexpr Run kShiftedSigns = 0;
#endif

// Rows of a matrix: for each group of columns the codes, scales and offsets of all rows. Codes
// alternate in runs of columns: row 0, row 1, ...
struct BlockTile {
  std::byte* codes;
  float* scales;     // [groups][kTileRows]
  float* offsets;    // [groups][halves][kTileRows]
  int16_t* factors;  // [groups][2][kTileRows][2]: the scale of each half, twice

  static size_t bytes(size_t columns) { return columns * kTileRows * 2; }
};
template <class T>
BlockTile tile_at(std::byte* p, size_t columns) {
  const size_t groups = columns / kGroupColumns;
  BlockTile t;
  t.codes = p;
  t.scales = reinterpret_cast<float*>(p + columns * kTileRows);
  t.offsets = t.scales + groups * kTileRows;
  t.factors = reinterpret_cast<int16_t*>(t.offsets + 2 * groups * kTileRows);
  return t;
}

}  // namespace FERRY_BLOCK_NAMESPACE
}  // namespace ferry::kernels
FERRY_BLOCK_AFTER();

#endif  // FERRY_BLOCK_VECTORS_INL_H_
