// preprocess: image files to the pixel values that a checkpoint's own processor makes of them, and
// a prompt with these images to token ids.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/result.h"
#include "core/shape.h"
#include "core/thread_pool.h"
#include "media/resample.h"
#include "media/tiling.h"
#include "prompt/image_prompt.h"

namespace ferry::prompt {

struct PromptRequest {
  enum class Form {
    kMessages,  // JSON: messages with items of content
    kChat,      // the text of one user message
    kPlain,     // no chat
  };
  Form form = Form::kPlain;
  std::string text;
  std::string where;          // begins the messages
  text::chat::TimeText time;  // for the chat template
};

struct PreprocessRequest {
  std::vector<std::string> images;  // the images of one prompt, in order
  // A directory with the processor files, or a bundle whose vision encoder takes what is made; the
  // other is empty.
  std::string checkpoint, bundle;
  std::string output;  // a new safetensors file; may be empty where there is a prompt
  media::Backend backend = media::Backend::kTorchvision;
  std::optional<PromptRequest> prompt;
};

struct PreprocessedImage {
  std::string path;
  media::Size size;  // after it was turned by its EXIF orientation
  media::Grid grid;  // 0 x 0: one tile that is no part of a grid
  size_t tiles = 0;  // with the whole picture, if there is one beside the grid
};

struct PreprocessedPrompt {
  ExpandedPrompt expanded;
  int64_t tokens_per_tile = 0;
  int64_t placeholder_id = 0;
};

struct PreprocessReport {
  std::vector<PreprocessedImage> images;
  Shape pixel_values = {};          // empty: no images
  Shape pixel_attention_mask = {};  // empty: the processor has none
  std::optional<PreprocessedPrompt> prompt;
};

ImageLayout layout_of(media::Grid grid, size_t tiles);

// Writes pixel_values (f32), pixel_attention_mask (i64) where the processor has one, and input_ids
// (i64) where there is a prompt. The first image that cannot be read ends it; nothing is written
// then. kUsage for a bundle that takes no images, kBadInput for one whose processor does not fit
// its vision encoder. Of a bundle no digests are checked.
Result<PreprocessReport> preprocess(const PreprocessRequest& request, ThreadPool& pool);

}  // namespace ferry::prompt
