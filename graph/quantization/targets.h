// Chooses the instruction sets for which the kernels of quantisation are compiled: AVX-512, AVX2
// and plain loops on x86, NEON on Arm. It must be included before any header of Highway.
#pragma once

#define HWY_DISABLED_TARGETS \
  (HWY_SSSE3 | HWY_SSE4 | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
