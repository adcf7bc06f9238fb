#include "media/picture_parts.h"

#include <algorithm>

namespace ferry::media {

Image part(const Image& canvas, int left, int top, Size size) {
  Image tile = make_image(size);
  for (int y = 0; y < size.height; ++y) {
    const uint8_t* from = canvas.row(top + y) + size_t{3} * static_cast<size_t>(left);
    std::copy(from, from + tile.row_bytes(), tile.row(y));
  }
  return tile;
}

std::vector<Image> parts(const Image& canvas, Grid grid, int side) {
  std::vector<Image> tiles;
  for (int row = 0; row < grid.rows; ++row) {
    for (int column = 0; column < grid.columns; ++column) {
      tiles.push_back(part(canvas, column * side, row * side, {side, side}));
    }
  }
  return tiles;
}

Image window(const Image& image, int left, int top, Size size,
             const std::array<uint8_t, 3>& colour) {
  Image out = make_image(size);
  for (int y = 0; y < size.height; ++y) {
    const bool row = top + y >= 0 && top + y < image.size.height;
    for (int x = 0; x < size.width; ++x) {
      const bool inside = row && left + x >= 0 && left + x < image.size.width;
      const uint8_t* from =
          inside ? image.row(top + y) + size_t{3} * static_cast<size_t>(left + x) : colour.data();
      std::copy_n(from, 3, out.row(y) + size_t{3} * static_cast<size_t>(x));
    }
  }
  return out;
}

Result<Image> pad_to_square(const Image& image, const std::array<double, 3>& mean) {
  const int side = std::max(image.size.width, image.size.height);
  FERRY_RETURN_IF_ERROR(check_size(side, side, "the picture as a square"));
  std::array<uint8_t, 3> colour{};
  for (size_t c = 0; c < 3; ++c) {
    colour[c] = static_cast<uint8_t>(std::clamp(mean[c] * 255, 0.0, 255.0));
  }
  return window(image, -((side - image.size.width) / 2), -((side - image.size.height) / 2),
                {side, side}, colour);
}

}  // namespace ferry::media
