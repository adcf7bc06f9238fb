#include "core/hadamard.h"

#include <cmath>

namespace ferry {

void hadamard_rotate(std::span<float> values, size_t width) {
  const float scale = 1.0F / std::sqrt(static_cast<float>(width));
  for (; width > 0 && values.size() >= width; values = values.subspan(width)) {
    for (size_t half = 1; half < width; half *= 2) {
      for (size_t i = 0; i < width; ++i) {
        if ((i & half) != 0) continue;
        const float a = values[i], b = values[i + half];
        values[i] = a + b;
        values[i + half] = a - b;
      }
    }
    for (float& value : values.first(width)) value *= scale;
  }
}

}  // namespace ferry
