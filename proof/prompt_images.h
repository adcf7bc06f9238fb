// PromptImages holds the images of a prompt, and the positions of their rows among its tokens.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/image_grid.h"
#include "core/program_interface.h"
#include "core/result.h"
#include "packer/manifest.h"
#include "proof/reference.h"
#include "runner/picture_tiles.h"
#include "runner/token_embedder.h"

namespace ferry::proof {

// The sounds of a prompt are windows of frames, which are tiles too, or the frames of one sound.
struct PromptImages {
  const RowEncoder* encoder = &kPictureRows;  // what makes rows of them
  // [tiles,3,S,S]; of lists of patches [tiles,P,V], of images of any shape [patches,values]; of
  // sounds [windows,mels,frames], or with row_frames [sounds,frames,mels]
  Shape pixel_shape = {};
  std::vector<float> pixels = {};    // in this shape; empty if only features are known
  std::vector<float> features = {};  // [rows, row width]; empty until the images are encoded
  // States how images of any shape are cut; absent for others.
  std::optional<ImageGrid> grid = {};
  std::optional<PatchList> list = {};      // the sizes of lists of patches, where `picture` is set
  std::optional<ImageShape> picture = {};  // the one shape that all have, if they have one
  bool placed = false;  // whether these have places in three dimensions in the text decoder
  // The patches of each image of any shape, or of each tile that is a list of patches; the sizes in
  // pixels of pictures whose tiles have rows together.
  std::vector<ImageShape> shapes = {};
  std::optional<runner::PictureTiles> tiled = {};  // set where pictures have tiles together
  std::vector<int64_t> tile_counts = {};           // the tiles of each of these pictures
  // For lists of patches: the reference's last state of the tower has no rows of padding, and the
  // rows of all tiles lie behind each other.
  bool joins_states = false;
  // The patches of each list of the reference, where those of pixel_shape may be longer.
  std::vector<int64_t> list_lengths = {};
  int64_t row_frames = 0;  // of a sound of any number of frames: those of a row, else 0
  int64_t block_rows = 1;  // the rows that so many frames become
  // The rows of such a sound, where they do not follow from its frames; its model hears padding.
  int64_t padded_rows = 0;
  // How many frames of each sound are no padding, where there are several sounds of any number of
  // frames, or one with padding. Otherwise empty.
  std::vector<int64_t> shown_frames = {};
  int64_t causal_frames = 0;  // of a row of the layers, where no row sees those behind it
  int64_t width = 0;          // hidden_size: the first columns of a row are the embedding
  // Consecutive positions of placeholders; of images that have places with their blocks.
  struct Run {
    int64_t first = 0, count = 0;
    int64_t grid_rows = 0, grid_columns = 0;
    int64_t grid_frames = 1;  // of a video: groups of frames, and how far they are apart in time
    float frame_step = 1;
  };
  int64_t tokens = 0;  // of the prompt
  // The first shapes are those of images, this many, where images stand beside videos.
  size_t stills = 0;
  // The groups of frames of each video, where they are videos; each has a shape in `shapes`. That
  // of a frame that is a tile is 1 x 1.
  std::vector<int64_t> video_groups = {};
  std::vector<float> group_seconds = {};  // between these of each video, where the reference says
  std::vector<Run> runs = {};
  // Where all tokens of the prompt attend to each other, the number of these, else 0.
  int64_t two_way_tokens = 0;
  // The inputs of another encoder in the same prompt: its sounds, where these are images.
  std::vector<PromptImages> others = {};

  bool empty() const { return runs.empty(); }
  // Returns these and the others.
  std::vector<PromptImages*> kinds();
  std::vector<const PromptImages*> kinds() const;
  // Returns the rows of all pictures whose tiles have rows together.
  int64_t rows_of_pictures() const;
  // Returns those of the images among them.
  int64_t rows_of_stills() const;
  // Returns the tiles, or the patches of any shape, of the images beside videos.
  int64_t still_tiles() const;
  // Returns the number of rows of all images.
  int64_t row_count() const;
  // Returns views of the features of all kinds, in the order of their places.
  std::vector<runner::EmbeddingRows> rows() const;
  // Returns views of values that are given in the place of `features`.
  std::vector<runner::EmbeddingRows> rows_of(std::span<const float> values) const;
  // Returns whether tiles are lists of patches.
  bool has_lists() const { return !grid && !tiled && !shapes.empty(); }
  // Returns whether image_features are those of all tiles behind each other, which have different
  // numbers of rows or have them together.
  bool joins_features() const { return tiled || has_lists() || row_frames > 0; }
  // Whether they are sounds, whose rows see those before them alone.
  bool are_sounds() const { return encoder->role == kAudioEncoderRole; }
  // Returns the frames of a sound that are not padding.
  int64_t frames_of(size_t sound) const {
    return shown_frames.empty() ? pixel_shape[1] : shown_frames[sound];
  }
  // Returns the rows of features of a tile, of which the vision encoder gives `given`: the others
  // are of padding.
  int64_t rows_of(size_t tile, int64_t given) const {
    if (padded_rows > 0) return padded_rows;
    if (row_frames > 0) return (frames_of(tile) + row_frames - 1) / row_frames * block_rows;
    return has_lists() && !picture ? shapes[tile].patches() / (pixel_shape[1] / given) : given;
  }
};

// Makes a tensor of the vision tower that of all images of a prompt, of which `values` has the
// values of all calls; that of one call is `shape`. Returns the shape of the result, and takes rows
// of padding out where the reference does (`joins_states`).
Shape join_tower(const PromptImages& images, std::string_view name, Shape shape,
                 std::vector<float>& values);

// Returns pixel_values and image_features of a prompt that needs images, and the positions of their
// rows. A reference has pixel_values [tiles,3,S,S] or [1,tiles,3,S,S]; in the second form, tiles of
// zeros are padding and left out. Of lists of patches it has pixel_values [tiles,P,V] and
// spatial_shapes [tiles,2] or image_position_ids [tiles,P,2], and may have pixel_attention_mask. Of
// images of any shape it has pixel_values [patches,values] and image_grid_thw [images,3], or
// pixel_values [images,3,H,W] and image_sizes [images,2]; of videos pixel_values_videos
// [patches,values], video_grid_thw [videos,3] and, where it has them, second_per_grid_ts [videos],
// or, as lists of patches, pixel_values_videos [frames,P,V], video_position_ids [frames,P,2] or
// spatial_shapes [frames,2], and num_frames_per_video [videos], or, as tiles, pixel_values_videos
// [videos,frames,3,S,S]. Beside videos it may have images, whose tensors of the tower and features
// are before those of the videos, [1,rows of all,width]. Of pictures whose tiles have rows together
// it has pixel_values [images,tiles,3,S,S] or [tiles of all images,3,S,S], and image_sizes
// [images,2], the sizes of the pictures before they were cut. A prompt with sounds has
// input_features [windows,mels,frames], or [sounds,frames,mels] of sounds of any number of frames,
// of which input_features_mask [sounds,frames] says which are not padding, and audio_features
// instead, or, with both, as well: sounds are then among `others`. kBadInput unless both give an
// equal number of rows, at least one, with one placeholder for each row. The placeholder is
// image_token_id or audio_token_id of the manifest; if the manifest has none, it is the only id
// that occurs once per row.
Result<PromptImages> images_of(const Reference& reference, const ReferencePrompt& prompt,
                               const packer::Manifest& manifest);

}  // namespace ferry::proof
