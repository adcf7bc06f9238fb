// VisionEncoder runs the vision encoder of a bundle. Pixels of images or tiles go in, rows for the
// text decoder come out. It also runs an audio encoder that makes such rows: its tiles are windows
// of log-mel frames, f32 [1,mels,frames], or the frames of one sound, f32 [1,frames,mels].
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/image_grid.h"
#include "core/program_interface.h"
#include "core/result.h"
#include "packer/bundle_reader.h"
#include "runner/picture_tiles.h"
#include "runner/program_set.h"

namespace ferry::runner {

class VisionEncoder {
 public:
  struct Sizes {
    // The shape of pixel_values: [1,3,S,S], or [1,P,V] for P patches of V values. The shape of
    // input_features, where the encoder takes sounds: [1,mels,frames], or with row_frames
    // [1,frames,mels] for that many frames at most.
    Shape tile = {};
    int64_t row_frames = 0;    // where sounds have any number of frames: those of a row, else 0
    int64_t block_rows = 1;    // the rows that so many frames become
    bool pads_sounds = false;  // whether every sound becomes `rows`, whatever its frames
    bool is_causal = false;    // whether rows of such sounds depend on no row behind them
    int64_t image_size = 0;    // S, the pixels of a side; 0 for other encoders
    int64_t patches = 0;       // P, of lists of patches; 0 for other encoders
    int64_t rows = 0;          // rows of features that a tile becomes; of any shape: at most
    int64_t width = 0;         // width of a row of features, which is hidden_size of the decoder
    int64_t layers = 0;        // decoder layers that get features too
    int64_t row_width = 0;     // of a row of encode(); see EmbeddingRows
    int64_t block_values = 0;  // images of any shape: pixel values of a block of patches
    std::optional<ImageShape> picture = {};  // set where all images have this shape, in patches
    // The rows of text that the program gives beside those of a picture, one behind each row of
    // blocks (Pixtral); encode() leaves them out.
    int64_t row_marks = 0;
    std::optional<PictureTiles> tiles = {};  // set where pictures have tiles together

    // Returns the rows of a sound of so many frames.
    int64_t rows_of_frames(int64_t frames) const {
      return pads_sounds ? rows : (frames + row_frames - 1) / row_frames * block_rows;
    }
    // Returns the most frames of a sound, which has no more rows of its own than it becomes.
    int64_t most_frames() const {
      return pads_sounds ? std::min(tile[1], rows * row_frames) : tile[1];
    }
    // Returns the rows of a list with so many rows and columns of patches.
    int64_t rows_of(const ImageShape& shape) const { return shape.patches() / (patches / rows); }
    // Returns whether a list of patches may have this shape.
    bool takes(const ImageShape& shape) const;
  };

  static bool is_in(const packer::Bundle& bundle);
  // Returns the sizes that the manifest states. kBadInput if inputs or outputs do not follow the
  // protocol.
  static Result<Sizes> sizes_in(const packer::Bundle& bundle,
                                const RowEncoder& encoder = kPictureRows);
  // `pool` must outlive the encoder. kBadInput for a program that does not follow the protocol.
  static Result<VisionEncoder> load(const packer::Bundle& bundle, ThreadPool& pool,
                                    const MethodOptions& options,
                                    const RowEncoder& encoder = kPictureRows);

  int64_t image_size() const { return sizes_.image_size; }
  int64_t rows() const { return sizes_.rows; }
  int64_t width() const { return sizes_.width; }
  // The width of a row of encode(); see EmbeddingRows.
  int64_t row_width() const { return sizes_.row_width; }
  bool takes_any_shape() const { return sizes_.block_values > 0; }
  const Sizes& sizes() const { return sizes_; }

  // Computes features f32 [n,rows(),width()] of pixel_values f32 [n,3,image_size,image_size] of n
  // tiles. Of n lists of patches, [n,P,V], `shapes` has the rows and columns of each, and the
  // features are those of the patches that are not padding. The caller owns the result. kUsage for
  // another number of values, or other shapes.
  // Where pictures have tiles together, `shapes` are the sizes of the pictures in pixels, and the
  // result is their rows (runner/picture_tiles.h).
  // A sound of any number of frames, [frames,mels], has f32 [rows_of_frames(),width()]; kUsage for
  // no frames or too many.
  // An encoder for images of any shape takes the patches of the images, as the image processor
  // gives them, and their shapes. It returns [blocks of all images, row_width()] in the order of
  // the patches. kBadInput for an image that is too large.
  Result<std::vector<float>> encode(std::span<const float> pixels,
                                    std::span<const ImageShape> shapes = {});

  // Computes the rows of sounds of one prompt, f32 [rows of all,width()], of frames
  // [sounds,F,mels], where `shown` says how many of each sound are not padding. Errors as for
  // rows_of_sounds() (runner/padded_sounds.h).
  Result<std::vector<float>> encode_sounds(std::span<const float> frames,
                                           std::span<const int64_t> shown);

  // The sink is called for every probe of every tile: name, shape, and f32 values [rows, width].
  // The rows of images of any shape are in the order of the encoder (core/image_grid.h).
  using ProbeSink = std::function<void(const std::string& name, const Shape& shape,
                                       std::span<const float> values)>;
  Status set_probe_sink(ProbeSink sink);

 private:
  VisionEncoder(ProgramSet set, MethodChain chain)
      : set_(std::move(set)), chain_(std::move(chain)), sink_(std::make_unique<ProbeSink>()) {}

  Result<std::vector<float>> encode_tiles(std::span<const float> pixels,
                                          std::span<const ImageShape> shapes);
  // encode() for the frames of one sound of any number.
  Result<std::vector<float>> encode_frames(std::span<const float> frames);
  // Returns the features of all tiles; of lists of patches, without padding.
  Result<std::vector<float>> features_of_tiles(std::span<const float> pixels,
                                               std::span<const ImageShape> shapes);
  // Appends the first `kept` rows of the last call.
  Status append_rows(std::vector<float>& rows, int64_t kept);
  Status check_shapes(std::span<const ImageShape> shapes, size_t tiles) const;
  // encode() for lists of patches, where the encoder takes pictures of one shape.
  Result<std::vector<float>> encode_lists(std::span<const float> pixels,
                                          std::span<const ImageShape> shapes);
  // Appends the rows of one picture of that shape, of planes [3,height,width].
  Status encode_planes(std::span<const float> planes, std::vector<float>& rows);
  // Appends the rows of one image.
  Status encode_image(std::span<const float> pixels, const ImageShape& shape,
                      std::vector<float>& rows);
  // Copies an output [layers,blocks,width] to the columns of its layers, from `first` on.
  Status take_output(size_t output, const GridInputs& grid, int64_t first, int64_t layers,
                     float* rows) const;

  ProgramSet set_;
  MethodChain chain_;
  std::unique_ptr<ProbeSink> sink_;  // on the heap, because methods point to it
  bool observing_ = false;
  Sizes sizes_;
  std::vector<std::string> inputs_;  // the names of those of the chain
};

}  // namespace ferry::runner
