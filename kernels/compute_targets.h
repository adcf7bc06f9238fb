// Which instruction sets the kernels are compiled for. Include before anything of Highway.
// On x86: AVX-512, AVX2 and plain loops, which processors without AVX2 run. On Arm: NEON; the
// scalable vectors are left out because the register tiles need a size known at compile time.
#pragma once

#define HWY_DISABLED_TARGETS \
  (HWY_SSSE3 | HWY_SSE4 | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
