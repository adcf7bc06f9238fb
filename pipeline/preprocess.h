// preprocess: image files to the pixel values that a checkpoint's own processor makes of them.
#pragma once

#include <string>
#include <vector>

#include "core/result.h"
#include "core/shape.h"
#include "core/thread_pool.h"
#include "media/resample.h"
#include "media/tiling.h"

namespace ferry::pipeline {

struct PreprocessRequest {
  std::vector<std::string> images;  // the images of one prompt, in order
  std::string checkpoint;           // a directory with preprocessor_config.json
  std::string output;               // a new safetensors file
  media::Backend backend = media::Backend::kTorchvision;
};

struct PreprocessedImage {
  std::string path;
  media::Size size;  // after it was turned by its EXIF orientation
  media::Grid grid;  // 0 x 0: one tile that is no part of a grid
  size_t tiles = 0;  // with the whole picture, if there is one beside the grid
};

struct PreprocessReport {
  std::vector<PreprocessedImage> images;
  Shape pixel_values;
  Shape pixel_attention_mask = {};  // empty: the processor has none
};

// Writes pixel_values (f32) and, where the processor has one, pixel_attention_mask (i64). The first
// image that cannot be read ends it; nothing is written then.
Result<PreprocessReport> preprocess(const PreprocessRequest& request, ThreadPool& pool);

}  // namespace ferry::pipeline
