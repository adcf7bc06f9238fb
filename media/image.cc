#include "media/image.h"

#include <fmt/format.h>

namespace ferry::media {

Status check_size(int64_t width, int64_t height, const std::string& where) {
  if (width < 1 || height < 1) {
    return bad_input(fmt::format("{}: the image has no pixels ({} x {})", where, width, height));
  }
  if (width > kMaxSide || height > kMaxSide || width * height > kMaxPixels) {
    return bad_input(
        fmt::format("{}: the image is too large: {} x {} pixels; the limits are {} pixels and "
                    "{} a side",
                    where, width, height, kMaxPixels, kMaxSide));
  }
  return {};
}

Image make_image(Size size) {
  Image image{.size = size, .rgb = {}};
  image.rgb.resize(image.row_bytes() * static_cast<size_t>(size.height));
  return image;
}

}  // namespace ferry::media
