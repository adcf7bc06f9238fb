// The tiles of a picture of any size, which is brought into one of several resolutions, and the
// features of these tiles that belong to the picture. Source: transformers 5.23,
// image_processing_utils.py, models/llava_next and models/llava_onevision.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

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

// The default resolutions of LLaVA-OneVision: 1 to 6 tiles of 384 pixels down and across.
std::vector<Extent> onevision_resolutions();
// Returns the number N of the text "anyres_max_N", and nothing for other texts and for 0.
std::optional<int64_t> most_tiles_of(std::string_view text);
inline constexpr std::optional<int64_t> kDefaultMostTiles = 9;  // of LLaVA-OneVision

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
