// Products with blocks of GGUF files by NEON with dot products of bytes.
#include "kernels/block_product.h"

#if FERRY_NEON_DOT
#include "core/highway_targets.h"
// These includes must follow the choice of targets.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/block_neon_dot.cc"
#include "hwy/foreach_target.h"
// This include must follow foreach_target.h.
#include "hwy/highway.h"

#if HWY_TARGET == HWY_NEON
#define FERRY_BLOCK_NEON 1
// Highway compiles its functions with "+crypto", and they are inlined only into such.
#ifdef __clang__
#define FERRY_BLOCK_TARGET "dotprod"
#else
#define FERRY_BLOCK_TARGET "arch=armv8.2-a+crypto+dotprod"
#endif
#define FERRY_BLOCK_NAMESPACE HWY_NAMESPACE::dot
#define FERRY_BLOCK_BEFORE() HWY_PUSH_ATTRIBUTES(FERRY_BLOCK_TARGET)
#define FERRY_BLOCK_AFTER() HWY_POP_ATTRIBUTES
#define FERRY_BLOCK_ATTR __attribute__((target(FERRY_BLOCK_TARGET)))
#include "kernels/block_tiles-inl.h"
#endif

#if HWY_ONCE
namespace ferry::kernels {

const BlockSet& block_neon_dot() {
  static constexpr BlockSet set{"NEON dot", N_NEON::dot::block_scratch, N_NEON::dot::block_task};
  return set;
}

}  // namespace ferry::kernels
#endif  // HWY_ONCE
#endif  // FERRY_NEON_DOT
