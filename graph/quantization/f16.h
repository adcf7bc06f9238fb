// Scales and minima of blocks. Private to graph/quantization.
#pragma once

#include <cstdint>
#include <cstring>

#include "core/dtype.h"

namespace ferry::graph {

inline void put_f16(void* to, float value) {
  const uint16_t bits = f32_to_f16(value);
  std::memcpy(to, &bits, sizeof bits);
}

}  // namespace ferry::graph
