// An image in memory, and the limits that every decoder enforces.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/result.h"

namespace ferry::media {

struct Size {
  int width = 0, height = 0;
  bool operator==(const Size&) const = default;
};

// 8-bit RGB, interleaved. The rows go from top to bottom without padding.
struct Image {
  Size size;
  std::vector<uint8_t> rgb;
  // The colour that a file states to be transparent.
  std::optional<std::array<uint8_t, 3>> clear = {};

  size_t row_bytes() const { return size_t{3} * static_cast<size_t>(size.width); }
  uint8_t* row(int y) { return rgb.data() + row_bytes() * static_cast<size_t>(y); }
  const uint8_t* row(int y) const { return rgb.data() + row_bytes() * static_cast<size_t>(y); }
};

// The longest side that is accepted, which is also the longest that JPEG can state.
inline constexpr int kMaxSide = 65'535;
// Pillow 13 refuses a larger image as a decompression bomb.
inline constexpr int64_t kMaxPixels = 178'956'970;
inline constexpr uint64_t kMaxFileBytes = uint64_t{256} << 20;

// Checks the size that a header states, before memory is allocated for the image. `where` begins
// the message.
Status check_size(int64_t width, int64_t height, const std::string& where);
// Returns a black image.
Image make_image(Size size);

}  // namespace ferry::media
