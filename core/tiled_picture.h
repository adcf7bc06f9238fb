// The tiles of a picture of any size, which is brought into one of several resolutions, and the
// features of these tiles that belong to the picture. Source: transformers 5.23,
// image_processing_utils.py, models/llava_next and models/llava_onevision.
#pragma once

#include <cstdint>
#include <span>

namespace ferry {

// Pixels, tiles or features down and across.
struct Extent {
  int64_t rows = 0, columns = 0;
  int64_t area() const { return rows * columns; }
  bool operator==(const Extent&) const = default;
};

// The limits of what a checkpoint or a bundle may ask for.
inline constexpr size_t kMaxResolutions = 256;
inline constexpr int64_t kMaxResolutionSide = 8192;     // in pixels
inline constexpr int64_t kMaxResolutionArea = 1 << 26;  // in pixels
inline constexpr int64_t kMaxResolutionTiles = 256;
inline constexpr int64_t kMaxFewestTiles = 999;  // the N of anyres_max_N

// Returns whether a resolution is of whole tiles of `tile` pixels a side and within the limits.
bool is_resolution(Extent resolution, int64_t tile);

// Returns the resolution that keeps most pixels of a picture, and of these the one that wastes
// least; the first of equals. There must be one, and the picture must have pixels.
Extent best_resolution(Extent picture, std::span<const Extent> resolutions);
// Returns the size of a picture that is as large as it can be inside of a resolution.
Extent size_inside(Extent picture, Extent resolution);

// Returns which of the features of a grid of tiles, of `side` x `side` each, are those of the
// picture without the frame around it. The frame is of equal width on both sides.
Extent framed_features(Extent picture, Extent tiles, int64_t side);
// Returns the size to which these are reduced where they are too many for `most_tiles` tiles; the
// same size where they are not, and for 0.
Extent reduced_features(Extent framed, int64_t side, int64_t most_tiles);

}  // namespace ferry
