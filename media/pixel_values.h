// Computes as a checkpoint's image processor does: cut() divides an image into tiles, and
// pixel_values() converts tiles to the inputs of a vision encoder. Target sizes and grids are
// computed in f64 as in the reference (transformers 5.12.1).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/dtype.h"
#include "core/thread_pool.h"
#include "media/image.h"
#include "media/settings.h"

namespace ferry::media {

struct Grid {
  int columns = 0, rows = 0;  // both 0 for a single tile that is not part of a grid
  bool operator==(const Grid&) const = default;
};

// Tiles of one size, row by row. If there is a grid of several tiles, the whole picture is the last
// tile; for Gemma3 and Pinpoints it is the first; for Lfm2Vl it has a size of its own, or is not
// there. For Qwen2Vl and Pixtral the grid is that of the patches of the only tile.
struct TiledImage {
  Grid grid;
  std::vector<Image>
      tiles;           // each settings.tile wide and high, but for Lfm2Vl, Qwen2Vl and Pixtral
  Size original = {};  // for Pinpoints: the size of the picture

  // Returns the tokens that each tile becomes, of Pixtral those of each row of tokens; empty where
  // all become the same number, which the processor states; of Pinpoints that of the picture.
  std::vector<int64_t> tokens(const Settings& settings) const;
};

// Reads a picture as the processor sees it: read_image(), and a transparent colour is white where
// the processor converts pictures to RGB.
Result<Image> read_picture(const std::string& path, const Settings& settings);

// kBadInput for a picture that the reference refuses: for Qwen2Vl one whose sides differ by a
// factor of more than 200. kUnsupported for a picture that the reference cannot process either, and
// for a backend that the processor does not have.
Result<TiledImage> cut(const Image& image, const Settings& settings, Backend backend,
                       ThreadPool& pool);

// For Idefics3: returns the size whose longer side is `longest_edge`; the other side is even.
Size idefics3_size(Size image, int longest_edge);
// For Idefics3: returns `size` with both sides increased to multiples of `tile`.
Size idefics3_canvas(Size size, int tile);
// For Idefics3: returns the grid of the tiles of a canvas.
Grid idefics3_grid(Size canvas, int tile);

// For GotOcr2 (InternVL): returns the grid of `least` to `most` tiles whose shape is nearest to
// that of the image.
Grid gotocr2_grid(Size image, int tile, int least, int most);

// For Gemma3: returns the grid of pan and scan, one row or one column; {} for a picture whose sides
// are too near to each other in length, or too short.
Grid gemma3_grid(Size image);

// For Qwen2Vl: returns the size to which an image is resized.
Size qwen2vl_size(Size image, const Settings& settings);
// For Pixtral: the same. A side is 0 for a picture that is too narrow.
Size pixtral_size(Size image, const Settings& settings);
// For Lfm2Vl: returns the size of a picture that is not cut, or of its thumbnail. Both sides are
// multiples of patch x merge.
Size lfm2_size(Size image, const Settings& settings);
// For Gemma4: returns the largest size of this shape with most_tokens, whose sides are multiples of
// patch x merge. kBadInput for a picture so narrow that the reference fails.
Result<Size> gemma4_size(Size image, const Settings& settings);
// For Lfm2Vl: returns whether the picture has more pixels than one tile of its shape may have.
bool lfm2_is_large(Size image, const Settings& settings);

struct PixelValues {
  Shape shape;
  std::vector<float> values;
  // For Idefics3: 1 for every pixel of a tile, 0 for pixels of padding. For Lfm2Vl the same of
  // patches.
  Shape mask_shape = {};
  std::vector<int64_t> mask = {};
  // For Qwen2Vl only: frames, rows and columns of patches of each image, [images,3].
  std::vector<int64_t> grids = {};
  // For Gemma4 and Lfm2Vl: the rows and the columns of patches of each tile, [tiles, 2].
  std::vector<int64_t> spatial_shapes = {};
  // For Pixtral: height and width of each image in pixels, [images, 2]; for Pinpoints those of the
  // picture before it is cut.
  std::vector<int64_t> image_sizes = {};
  // For LLaVA-OneVision: the number of images of each sample.
  std::vector<int64_t> image_counts = {};
  // For Gemma4: the column and the row of each patch, [tiles, max_patches, 2]; -1 for padding.
  Shape position_shape = {};
  std::vector<int64_t> positions = {};
};

// The images of one prompt.
using Sample = std::vector<TiledImage>;

// Idefics3: returns [samples, tiles, 3, side, side], in which samples with fewer tiles end with
// tiles of zeros. GotOcr2 and Gemma3: returns [tiles of all samples, 3, side, side]. Gemma4 and
// Lfm2Vl: returns [tiles of all samples, max_patches, 3 x patch x patch], where a patch has its
// pixels row by row, each with its channels, and rows of zeros are padding. Qwen2Vl: returns
// [patches of all samples, 3 * frames * patch * patch], in which blocks of merge x merge patches
// stay together. Pixtral: returns [images of all samples, 3, height, width], where smaller images
// end with zeros. The samples are not empty.
PixelValues pixel_values(std::span<const Sample> samples, const Settings& settings,
                         Backend backend);

// Returns the column and the row of each patch of a list that holds `patches`, [patches,2]; -1 for
// those behind the rows and columns.
std::vector<int64_t> patch_places(int64_t rows, int64_t columns, int64_t patches);

// For Qwen2Vl: returns the patches [patches, 3 * frames * patch * patch] of a group of frames of
// one size, whole blocks of patches. Fewer frames than a patch has are filled up with the last.
std::vector<float> group_values(std::span<const Image> frames, const Settings& settings,
                                Backend backend);

}  // namespace ferry::media
