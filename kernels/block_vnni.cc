// Products with blocks of GGUF files on processors with AVX-512 and VNNI, which sum the products of
// four pairs of bytes at once. The code is that of AVX2 with more instructions: the targets of
// Highway 1.0.3 either lack VNNI or have AVX-VNNI too, which Zen 4 does not know.
#include "kernels/block_product.h"

#if defined(__x86_64__)
#ifndef __clang__
// GCC 12's own header causes the warnings: https://gcc.gnu.org/bugzilla/show_bug.cgi?id=105593
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif

#include "core/highway_targets.h"
#undef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3 | HWY_AVX3_DL)
// These includes must follow the choice of targets.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/block_vnni.cc"
#include "hwy/foreach_target.h"
// This include must follow foreach_target.h.
#include "hwy/highway.h"

#if HWY_TARGET == HWY_AVX2
#define FERRY_BLOCK_VNNI 512
#define FERRY_BLOCK_TARGET HWY_TARGET_STR ",avx512f,avx512bw,avx512dq,avx512vl,avx512vnni"
#define FERRY_BLOCK_NAMESPACE HWY_NAMESPACE::vnni
#define FERRY_BLOCK_BEFORE() HWY_PUSH_ATTRIBUTES(FERRY_BLOCK_TARGET)
#define FERRY_BLOCK_AFTER() HWY_POP_ATTRIBUTES
#define FERRY_BLOCK_ATTR __attribute__((target(FERRY_BLOCK_TARGET)))
#include "kernels/block_tiles-inl.h"
#endif

#if HWY_ONCE
namespace ferry::kernels {

const BlockSet& block_vnni() {
  static constexpr BlockSet set{"AVX-512 VNNI", N_AVX2::vnni::block_scratch,
                                N_AVX2::vnni::block_task};
  return set;
}

}  // namespace ferry::kernels
#endif  // HWY_ONCE
#endif  // __x86_64__
