// Chooses the instruction sets for which code with vectors is compiled. It must be included before
// any header of Highway. On x86 the sets are AVX-512, AVX2 and plain loops, which processors
// without AVX2 run. On Arm it is NEON; scalable vectors are excluded, because the register tiles
// need a size known at compile time.
#pragma once

// The plain loops are HWY_SCALAR with every compiler. Compilers that Highway trusts with it would
// take HWY_EMU128, whose fused products round twice, so that processors without AVX2 would compute
// other bits.
#define HWY_BROKEN_EMU128 1

#define HWY_DISABLED_TARGETS \
  (HWY_SSSE3 | HWY_SSE4 | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
