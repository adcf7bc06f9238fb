// XXH3 with AVX2 instructions.
#include "core/xxh3_targets.h"

#if defined(__x86_64__)
#include <immintrin.h>
#include <limits.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#ifdef __clang__
#pragma clang attribute push(__attribute__((target("avx2"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2")
#endif

#define XXH_VECTOR 2  // XXH_AVX2; not every compiler defines __AVX2__ after the pragma
#include "core/xxh3-inl.h"

namespace ferry {

const Xxh3Functions& xxh3_avx2() { return kFunctions; }

}  // namespace ferry

#ifdef __clang__
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#endif
