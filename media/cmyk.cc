#include <algorithm>

#include "media/codecs.h"

namespace ferry::media {
namespace {

// Returns a * b / 255, rounded.
int scaled(int a, int b) {
  const int t = a * b + 128;
  return ((t >> 8) + t) >> 8;
}

}  // namespace

void convert_inverted_cmyk(const uint8_t* cmyk, uint8_t* rgb, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    const int light = cmyk[4 * i + 3];
    for (size_t c = 0; c < 3; ++c) {
      const int value = light - scaled(255 - cmyk[4 * i + c], light);
      rgb[3 * i + c] = static_cast<uint8_t>(std::clamp(value, 0, 255));
    }
  }
}

}  // namespace ferry::media
