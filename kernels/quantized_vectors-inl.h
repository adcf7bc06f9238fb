// Vectors of 32-bit lanes, one lane for each of several rows of a matrix; for quantized_many-inl.h.

namespace ferry::kernels {
namespace {

struct V256 {
  using Int = __m256i;
  using Float = __m256;
  static constexpr size_t kLanes = 8;

  static Int load(const void* p) { return _mm256_load_si256(static_cast<const Int*>(p)); }
  static void store(void* p, Int v) { _mm256_store_si256(static_cast<Int*>(p), v); }
  static Int set(int32_t x) { return _mm256_set1_epi32(x); }
  static Int add(Int a, Int b) { return _mm256_add_epi32(a, b); }
  static Int sub(Int a, Int b) { return _mm256_sub_epi32(a, b); }
  static Int mul(Int a, Int b) { return _mm256_mullo_epi32(a, b); }
  static Int add16(Int a, Int b) { return _mm256_add_epi16(a, b); }
  static Int madd(Int a, Int b) { return _mm256_madd_epi16(a, b); }
  static Int maddubs(Int u, Int s) { return _mm256_maddubs_epi16(u, s); }
  // Without this, GCC makes a tree of a chain of sums, which needs more registers than there are.
  static void keep(Int& v) { asm("" : "+x"(v)); }
  static Int ones16() { return _mm256_set1_epi16(1); }
  static Float to_float(Int v) { return _mm256_cvtepi32_ps(v); }
  static Float load(const float* p) { return _mm256_load_ps(p); }
  static Float load_any(const float* p) { return _mm256_loadu_ps(p); }
  static void store(float* p, Float v) { _mm256_store_ps(p, v); }
  static void store_any(float* p, Float v) { _mm256_storeu_ps(p, v); }
  static Float set(float x) { return _mm256_set1_ps(x); }
  static Float add(Float a, Float b) { return _mm256_add_ps(a, b); }
  static Float sub(Float a, Float b) { return _mm256_sub_ps(a, b); }
  static Float mul(Float a, Float b) { return _mm256_mul_ps(a, b); }
  static Float fma(Float a, Float b, Float c) { return _mm256_fmadd_ps(a, b, c); }
};

#ifdef FERRY_QUANTIZED_V512
struct V512 {
  using Int = __m512i;
  using Float = __m512;
  static constexpr size_t kLanes = 16;

  static Int load(const void* p) { return _mm512_load_si512(p); }
  static void store(void* p, Int v) { _mm512_store_si512(p, v); }
  static Int set(int32_t x) { return _mm512_set1_epi32(x); }
  static Int add(Int a, Int b) { return _mm512_add_epi32(a, b); }
  static Int sub(Int a, Int b) { return _mm512_sub_epi32(a, b); }
  static Int mul(Int a, Int b) { return _mm512_mullo_epi32(a, b); }
  static Int add16(Int a, Int b) { return _mm512_add_epi16(a, b); }
  static Int madd(Int a, Int b) { return _mm512_madd_epi16(a, b); }
  static Int maddubs(Int u, Int s) { return _mm512_maddubs_epi16(u, s); }
  static void keep(Int& v) { asm("" : "+v"(v)); }
  static Int ones16() { return _mm512_set1_epi16(1); }
  // _mm512_cvtepi32_ps leaves lanes undefined, and GCC 12 warns of that.
  static Float to_float(Int v) { return (Float) __builtin_convertvector((__v16si)v, __v16sf); }
  static Float load(const float* p) { return _mm512_load_ps(p); }
  static Float load_any(const float* p) { return _mm512_loadu_ps(p); }
  static void store(float* p, Float v) { _mm512_store_ps(p, v); }
  static void store_any(float* p, Float v) { _mm512_storeu_ps(p, v); }
  static Float set(float x) { return _mm512_set1_ps(x); }
  static Float add(Float a, Float b) { return _mm512_add_ps(a, b); }
  static Float sub(Float a, Float b) { return _mm512_sub_ps(a, b); }
  static Float mul(Float a, Float b) { return _mm512_mul_ps(a, b); }
  static Float fma(Float a, Float b, Float c) { return _mm512_fmadd_ps(a, b, c); }
};
#endif

}  // namespace
}  // namespace ferry::kernels
