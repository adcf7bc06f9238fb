// Parts of pictures, and pictures with a frame (private to media/).
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "core/result.h"
#include "media/pixel_values.h"

namespace ferry::media {

// Returns the part of `size` whose upper left corner is at (left, top). It is inside of the canvas.
Image part(const Image& canvas, int left, int top, Size size);
// Returns the squares of a canvas, row by row.
std::vector<Image> parts(const Image& canvas, Grid grid, int side);
// Returns what a window of `size` shows of an image; outside of the image it is of `colour`.
Image window(const Image& image, int left, int top, Size size,
             const std::array<uint8_t, 3>& colour);
// Returns the image in the middle of a square of the mean colour. kBadInput for a square that is
// too large.
Result<Image> pad_to_square(const Image& image, const std::array<double, 3>& mean);

// For Pinpoints: as cut(), and the only number of TiledImage::tokens().
Result<TiledImage> cut_pinpoints(const Image& image, const Settings& settings, Backend backend,
                                 ThreadPool& pool);
int64_t pinpoint_tokens(const TiledImage& image, const Settings& settings);

}  // namespace ferry::media
