// A set of instructions that only tests have.
#pragma once

#include "kernels/block_product.h"

namespace ferry::kernels {

#if defined(__x86_64__)
// For processors with AVX512-VNNI.
const BlockSet& block_evex();
#endif

}  // namespace ferry::kernels
