// Products with blocks of GGUF files on processors with AVX-VNNI, which lack AVX-512. The code is
// that of AVX2 with sums of the products of four pairs of bytes.
#include "kernels/block_product.h"

#if defined(__x86_64__)
#include "core/highway_targets.h"
#undef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3 | HWY_AVX3_DL)
// These includes must follow the choice of targets.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/block_avx_vnni.cc"
#include "hwy/foreach_target.h"
// This include must follow foreach_target.h.
#include "hwy/highway.h"

#if HWY_TARGET == HWY_AVX2
#define FERRY_BLOCK_VNNI 256
#define FERRY_BLOCK_DPBUSD _mm256_dpbusd_avx_epi32
#define FERRY_BLOCK_TARGET HWY_TARGET_STR ",avxvnni"
#define FERRY_BLOCK_NAMESPACE HWY_NAMESPACE::avx_vnni
#define FERRY_BLOCK_BEFORE() HWY_PUSH_ATTRIBUTES(FERRY_BLOCK_TARGET)
#define FERRY_BLOCK_AFTER() HWY_POP_ATTRIBUTES
#define FERRY_BLOCK_ATTR __attribute__((target(FERRY_BLOCK_TARGET)))
#include "kernels/block_tiles-inl.h"
#endif

#if HWY_ONCE
namespace ferry::kernels {

const BlockSet& block_avx_vnni() {
  static constexpr BlockSet set{"AVX-VNNI", N_AVX2::avx_vnni::block_scratch,
                                N_AVX2::avx_vnni::block_task};
  return set;
}

}  // namespace ferry::kernels
#endif  // HWY_ONCE
#endif  // __x86_64__
