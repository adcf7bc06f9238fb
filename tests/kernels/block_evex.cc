// The code of kernels/block_avx_vnni.cc with the encodings of AVX-512, so that processors which
// have AVX512-VNNI and AVX512-VL, but not AVX-VNNI, test it.
#include "tests/kernels/block_evex.h"

#if defined(__x86_64__)
#include "core/highway_targets.h"
#undef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3 | HWY_AVX3_DL)
// These includes must follow the choice of targets.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tests/kernels/block_evex.cc"
#include "hwy/foreach_target.h"
// This include must follow foreach_target.h.
#include "hwy/highway.h"

#if HWY_TARGET == HWY_AVX2
#define FERRY_BLOCK_VNNI 256
#define FERRY_BLOCK_DPBUSD _mm256_dpbusd_epi32
#define FERRY_BLOCK_TARGET HWY_TARGET_STR ",avx512f,avx512bw,avx512dq,avx512vl,avx512vnni"
#define FERRY_BLOCK_NAMESPACE HWY_NAMESPACE::evex
#define FERRY_BLOCK_BEFORE() HWY_PUSH_ATTRIBUTES(FERRY_BLOCK_TARGET)
#define FERRY_BLOCK_AFTER() HWY_POP_ATTRIBUTES
#define FERRY_BLOCK_ATTR __attribute__((target(FERRY_BLOCK_TARGET)))
#include "kernels/block_tiles-inl.h"
#endif

#if HWY_ONCE
namespace ferry::kernels {

const BlockSet& block_evex() {
  static constexpr BlockSet set{"AVX-VNNI, encoded as AVX-512", N_AVX2::evex::block_scratch,
                                N_AVX2::evex::block_task};
  return set;
}

}  // namespace ferry::kernels
#endif  // HWY_ONCE
#endif  // __x86_64__
