// The instruction sets that are compiled in. Each has a file of its own.
#pragma once

#include "kernels/quantized_kernels.h"

namespace ferry::kernels {

const InstructionSet& quantized_portable();
#if defined(__x86_64__)
const InstructionSet& quantized_avx2();
const InstructionSet& quantized_avx_vnni();
const InstructionSet& quantized_avx512();
const InstructionSet& quantized_avx512_vnni();
#elif defined(__aarch64__) && (!defined(__clang__) || defined(__ARM_FEATURE_DOTPROD))
const InstructionSet& quantized_neon_dot();
#endif

}  // namespace ferry::kernels
