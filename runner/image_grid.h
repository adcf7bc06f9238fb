// grid_inputs() makes the inputs of a vision encoder for images of any shape from the shape of an
// image. Source: transformers, vision_utils.py.
//
// The image processor gives the patches of an image block by block, row after row of blocks, and
// within a block row after row. The encoder takes the blocks window by window: windows row after
// row, and within a window row after row of blocks. Without windows the two orders are one.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/result.h"
#include "packer/manifest.h"

namespace ferry::runner {

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
Status check_image_shape(const packer::ManifestImageGrid& grid, const ImageShape& shape,
                         int64_t most_blocks, const std::string& where);

// check_image_shape() must have accepted the shape.
GridInputs grid_inputs(const packer::ManifestImageGrid& grid, const ImageShape& shape);

// Returns the patches of an image, in the order of the image processor, whose pixels are the upper
// left part of planes [3,height,width]. The image must fit; a patch has one frame.
std::vector<float> patches_of_planes(std::span<const float> planes, int64_t height, int64_t width,
                                     const packer::ManifestImageGrid& grid,
                                     const ImageShape& shape);

// Returns the blocks of `values`, which are of equal size, in the order `blocks`.
std::vector<float> take_blocks(std::span<const float> values, std::span<const int64_t> blocks);
// Writes blocks that are in the order `blocks` to their places in `out`, which begin every `stride`
// values. The values of a block are `size`.
void put_blocks(std::span<const float> values, std::span<const int64_t> blocks, size_t size,
                size_t stride, float* out);

}  // namespace ferry::runner
