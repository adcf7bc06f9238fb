// PictureTiles puts the features of the tiles of a picture together to rows of the text decoder.
// Source: transformers, pack_image_features() of models/llava_next and models/llava_onevision, and
// get_video_features() of the latter.
//
// The first tile is the whole picture. Behind it are those of a grid, row by row. A tile has side x
// side features and the newline behind them. The rows of a picture are the features of the whole
// picture, then those of the grid without the frame around the picture, row by row, with a newline
// behind each row. A picture may have the first tile alone; then its rows are those of this tile,
// newline included.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/dtype.h"
#include "core/image_grid.h"
#include "core/result.h"
#include "core/tiled_picture.h"
#include "packer/manifest.h"

namespace ferry::runner {

struct PictureTiles {
  std::vector<Extent> resolutions;  // in pixels
  int64_t tile = 0, side = 0;       // of a tile, in pixels and in features
  int64_t most_tiles = 0;           // see reduced_features()

  // Returns nothing unless `manifest` states resolutions of whole tiles, which are `pixels`,
  // [1,3,S,S], and have `features`, [1,side^2+1,E].
  static std::optional<PictureTiles> in(const packer::Manifest& manifest, const Shape& pixels,
                                        const Shape& features);

  // Returns the features of a tile and its newline.
  int64_t rows_of_tile() const { return side * side + 1; }
  // kBadInput for pictures without pixels, and for sides beyond those of any picture. Those that
  // other members get must have passed.
  static Status check(std::span<const ImageShape> pictures, const std::string& where);

  // Returns the tiles of the whole picture and of its grid.
  int64_t tiles_of(const ImageShape& picture) const { return 1 + grid_of(picture).area(); }
  // Returns the number of tiles of each picture, of whose sizes in pixels there are `pictures`:
  // one for all where there are as many tiles as pictures, else those of the whole picture and of
  // its grid. kBadInput unless these are `tiles` in all. `where` begins the message.
  Result<std::vector<int64_t>> tiles_of(std::span<const ImageShape> pictures, int64_t tiles,
                                        const std::string& where) const;
  // Returns the rows of a picture that has so many tiles.
  int64_t rows_of(const ImageShape& picture, int64_t tiles) const;
  // Returns the rows of a frame of a video, and appends them: its features, without the newline, in
  // a square of half the side, rounded up.
  int64_t rows_of_frame() const { return (side + 1) / 2 * ((side + 1) / 2); }
  void pack_frame(std::span<const float> features, size_t width, std::vector<float>& rows) const;
  // Appends them. `features` are those of the tiles, each a row of `width` values.
  void pack(std::span<const float> features, const ImageShape& picture, size_t width,
            std::vector<float>& rows) const;

 private:
  // Returns the tiles of the grid of a picture.
  Extent grid_of(const ImageShape& picture) const;
};

// Returns the rows of all pictures, one behind the other; see PictureTiles.
Result<std::vector<float>> pack_pictures(const PictureTiles& tiles,
                                         std::span<const ImageShape> pictures,
                                         std::span<const float> features, int64_t width,
                                         const std::string& where);

// Returns the rows of a video: those of its frames, then a newline. `features` are those of the
// frames, as many as tiles.
std::vector<float> pool_video(const PictureTiles& tiles, std::span<const float> features,
                              size_t width);

}  // namespace ferry::runner
