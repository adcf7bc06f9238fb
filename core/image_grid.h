// grid_inputs() makes the inputs of a vision encoder for images of any shape from the shape of an
// image. Source: transformers, vision_utils.py.
//
// The image processor gives the patches of an image block by block, row after row of blocks, and
// within a block row after row. The encoder takes the blocks window by window: windows row after
// row, and within a window row after row of blocks. Without windows the two orders are one.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "core/dtype.h"
#include "core/result.h"

namespace ferry {

// How images of any shape become the inputs of a vision encoder.
struct ImageGrid {
  int64_t patch_size = 0;           // pixels of a side
  int64_t temporal_patch_size = 0;  // equal frames of a patch
  int64_t merge_size = 0;           // patches of a side of a block, which becomes a row of features
  int64_t window_size = 0;          // blocks of a side of a window; 0: there are no windows
  int64_t table_size = 0;           // rows and columns of the learned positions; 0: there are none
  bool operator==(const ImageGrid&) const = default;
};

// The rows and the columns of patches of an image, multiples of merge_size. In memory these are two
// i64, as programs of lists of patches take them.
struct ImageShape {
  int64_t rows = 0, columns = 0;
  int64_t patches() const { return rows * columns; }
  bool operator==(const ImageShape&) const = default;
};

// For N patches in blocks of `unit` patches, in the order of the encoder.
struct GridInputs {
  std::vector<int64_t> blocks;     // [N / unit]: the number of each block in the processor's order
  std::vector<int64_t> positions;  // [2,N]: row and column of each patch
  std::vector<int64_t> windows;    // [N]: the number of its window
  // [4,N]: rows of the table of learned positions around each patch, and their weights. The table
  // is stretched over the image, corner on corner. Empty if there is no table.
  std::vector<int64_t> table_rows;
  std::vector<float> table_weights;
};

// Returns kBadInput unless the image is of whole blocks, one at least and `most_blocks` at most.
// `where` begins the message.
Status check_image_shape(const ImageGrid& grid, const ImageShape& shape, int64_t most_blocks,
                         const std::string& where);

// Returns kBadInput for another shape than the one that the vision encoder takes, if it takes one.
Status check_picture(const std::optional<ImageShape>& picture, const ImageShape& shape,
                     const std::string& where);

// check_image_shape() must have accepted the shape.
GridInputs grid_inputs(const ImageGrid& grid, const ImageShape& shape);
// Returns the same inputs for blocks in the order of the image processor.
GridInputs in_processor_order(const GridInputs& inputs);

// Returns the patches of an image, in the order of the image processor, whose pixels are the upper
// left part of planes [3,height,width]. The image must fit; a patch has one frame.
std::vector<float> patches_of_planes(std::span<const float> planes, int64_t height, int64_t width,
                                     const ImageGrid& grid, const ImageShape& shape);

// The sizes of a list of patches that stand row by row, each pixel with its channels (NaFlex).
struct PatchList {
  int64_t patch_size = 0;  // pixels of a side
  int64_t merge_size = 0;  // patches of a side of a square, which becomes a row of features
  int64_t values() const { return 3 * patch_size * patch_size; }  // of a patch
  bool operator==(const PatchList&) const = default;
};

// Makes lists of patches of `shape` [lists,P,V] as long as a program takes them, which the shapes
// of the pictures allow.
void fit_list_length(Shape& shape, std::vector<float>& pixels, int64_t patches);

// Returns the planes [3,height,width] of the first patches of a list, as many as `shape` has.
std::vector<float> planes_of_list(std::span<const float> list, const PatchList& patches,
                                  const ImageShape& shape);

// Returns the planes [3,height,width] of an image whose patches are in the order of the image
// processor. kUnsupported if the frames of a patch differ, which are those of a video.
Result<std::vector<float>> planes_of_patches(std::span<const float> patches, const ImageGrid& grid,
                                             const ImageShape& shape);

// Returns the features of the blocks of a picture, of values that have a row more behind each of
// the `lines` rows of blocks. The blocks are a multiple of the lines.
std::vector<float> without_row_marks(std::span<const float> values, int64_t blocks, int64_t lines);

// Returns the blocks of `values`, which are of equal size, in the order `blocks`.
std::vector<float> take_blocks(std::span<const float> values, std::span<const int64_t> blocks);
// Writes blocks that are in the order `blocks` to their places in `out`, which begin every `stride`
// values. The values of a block are `size`.
template <typename T>
void put_blocks(std::type_identity_t<std::span<const T>> values, std::span<const int64_t> blocks,
                size_t size, size_t stride, T* out) {
  for (size_t i = 0; i < blocks.size(); ++i) {
    const auto from = values.subspan(i * size, size);
    std::ranges::copy(from, out + static_cast<size_t>(blocks[i]) * stride);
  }
}

}  // namespace ferry
