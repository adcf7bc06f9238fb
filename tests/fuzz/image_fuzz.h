// Requirements on every decoder of images.
#pragma once

#include <utility>

#include "media/codecs.h"
#include "tests/fuzz/require.h"

namespace ferry {

inline void require_good_image(Result<media::Decoded> decoded) {
  if (!decoded) return require_good_message(decoded.error());
  const auto [width, height] = decoded->image.size;
  require(media::check_size(width, height, "f").has_value());
  require(decoded->orientation >= 1 && decoded->orientation <= 8);
  const size_t bytes = decoded->image.rgb.size();
  require(bytes == decoded->image.row_bytes() * static_cast<size_t>(height));
  const int orientation = decoded->orientation;
  require(media::oriented(std::move(decoded->image), orientation).rgb.size() == bytes);
}

}  // namespace ferry
