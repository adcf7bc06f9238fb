// preprocess() makes the pixel values of image files as a checkpoint's own processor makes them,
// and the token ids of a prompt with these images.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/dtype.h"
#include "core/result.h"
#include "core/thread_pool.h"
#include "media/pixel_values.h"
#include "media/resample.h"
#include "prompt/image_prompt.h"
#include "prompt/video_input.h"

namespace ferry::prompt {

struct PromptRequest {
  enum class Form {
    kMessages,  // JSON: messages with items of content
    kChat,      // the text of one user message
    kPlain,     // no chat
  };
  Form form = Form::kPlain;
  std::string text;
  std::string where;          // begins error messages
  text::chat::TimeText time;  // for the chat template
};

struct PreprocessRequest {
  std::vector<std::string> images;  // the images of one prompt, in order
  // Its videos: folders of frames, and how many of them a second has.
  std::vector<std::string> videos = {};
  std::optional<double> video_rate = {};
  // A directory with the processor files, or a bundle whose vision encoder takes the pixel values.
  // One of the two is empty.
  std::string checkpoint, bundle;
  std::string output;  // path of a new safetensors file; may be empty if there is a prompt
  media::Backend backend = media::Backend::kTorchvision;
  bool pan_and_scan = false;  // see media::set_pan_and_scan()
  std::optional<PromptRequest> prompt;
};

struct PreprocessedImage {
  std::string path;
  media::Size size;  // after the rotation that its EXIF orientation demands
  media::Grid grid;  // 0 x 0 for one tile that is no part of a grid; of patches, for any shape
  size_t tiles = 0;  // including the whole picture, if there is one beside the grid
  std::vector<int64_t> tokens =
      {};  // of each tile; or row of tokens; see media::TiledImage::tokens()
  // The blocks of patches of a side, where a picture keeps its shape; else 0 x 0.
  media::Grid blocks = {};
};

struct PreprocessedPrompt {
  ExpandedPrompt expanded;
  int64_t tokens_per_tile = 0;  // 0 where tiles have tokens of their own
  int64_t placeholder_id = 0;
  std::string token_types_name = {};  // see ImagePrompt::token_types()
  // 1 for placeholders of images, 2 for those of videos that have their own, else 0; all 0 for
  // two-way prompts; empty if unknown to a model
  std::vector<int64_t> token_types = {};
  int64_t placeholders = 0;               // in all
  std::vector<float> group_seconds = {};  // of each video, where the model takes them
};

struct PreprocessReport {
  std::vector<PreprocessedImage> images;
  std::vector<PreprocessedVideo> videos;
  Shape video_values = {};          // of pixel_values_videos; empty if frames are pixel_values
  Shape video_grid = {};            // of video_grid_thw
  Shape video_positions = {};       // of video_position_ids, which Gemma 4 has in its place
  Shape frame_counts = {};          // of num_frames_per_video, which Gemma 4 has too
  Shape pixel_values = {};          // empty if there are no images
  Shape pixel_attention_mask = {};  // empty if the processor has none
  Shape image_grid = {};            // of image_grid_thw; empty if pictures become tiles
  Shape spatial_shapes = {};        // empty unless tiles are lists of patches
  Shape image_counts = {};          // of batch_num_images, which LLaVA-OneVision has
  Shape image_sizes = {};           // empty unless the processor states them
  Shape image_positions = {};       // of image_position_ids, which Gemma 4 has in their place
  std::optional<PreprocessedPrompt> prompt;
};

ImageLayout layout_of(const PreprocessedImage& image);

// Cuts a picture of the file `path`, which begins messages. kBadInput for one that the reference
// refuses; other errors are those of media::cut().
Result<media::TiledImage> cut_picture(const media::Image& image, const std::string& path,
                                      const media::Settings& settings, media::Backend backend,
                                      ThreadPool& pool);
// Describes a picture that was cut.
PreprocessedImage describe_cut(const std::string& path, media::Size size,
                               const media::TiledImage& cut, const media::Settings& settings);

// Writes pixel_values (f32), pixel_attention_mask, spatial_shapes, image_position_ids,
// image_grid_thw, image_sizes and batch_num_images (i64) if the processor has them, and if there is
// a prompt input_ids and, for some models, token types (i64). Of videos it writes
// pixel_values_videos (f32) and, if the processor has them, video_grid_thw, video_position_ids and
// num_frames_per_video (i64), with a prompt of Qwen2.5-VL second_per_grid_ts (f32) too, or, where
// frames are images to the processor, pixel_values as of images. The first image that cannot be
// read ends the call, and nothing is written then. kUsage for a bundle that takes no images,
// kBadInput for one whose processor does not fit its vision encoder. The digests of a bundle are
// not checked.
Result<PreprocessReport> preprocess(const PreprocessRequest& request, ThreadPool& pool);

}  // namespace ferry::prompt
