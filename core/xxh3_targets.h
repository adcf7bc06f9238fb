// XXH3 compiled for several instruction sets, which all give the same digests. Private to core/.
#pragma once

#include <cstddef>

namespace ferry {

struct Xxh3Functions {
  // Writes 16 bytes to `out`.
  void (*digest)(const void* data, size_t size, void* out);
  // `state` has kXxh3StateBytes bytes and the alignment kXxh3StateAlignment.
  void (*reset)(void* state);
  void (*update)(void* state, const void* data, size_t size);
  void (*finish)(const void* state, void* out);
};
inline constexpr size_t kXxh3StateBytes = 576, kXxh3StateAlignment = 64;

const Xxh3Functions& xxh3_baseline();
#if defined(__x86_64__)
const Xxh3Functions& xxh3_avx2();
#endif

}  // namespace ferry
