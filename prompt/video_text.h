// Replaces the placeholders of videos by the texts that stand for their frames. It needs no
// tokenizer. Source: transformers, replace_video_token() of models/qwen2_5_vl, qwen3_vl, smolvlm,
// internvl, gemma4 and llava_onevision.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "prompt/image_processor.h"

namespace ferry::prompt {

// A video whose frames are encoded in groups, in order.
struct VideoLayout {
  int64_t groups = 0;
  int64_t tokens = 0;                // of a group; 0 where all tiles have tokens_per_tile
  std::vector<double> seconds = {};  // of each group
  double duration = 0;               // in seconds

  int64_t tokens_of(const ImageProcessor& processor) const {
    return tokens > 0 ? tokens : processor.tokens_per_tile;
  }
  // The runs of placeholders in the text: that of all groups, or one for each.
  int64_t runs(const ImageProcessor& processor) const {
    return processor.runs_videos() ? 1 : groups;
  }
  int64_t tokens_of_run(const ImageProcessor& processor) const {
    const int64_t last = processor.ends_videos() ? 1 : 0;
    return tokens_of(processor) * groups / runs(processor) + last;
  }
};

// Returns the cardinal number in English words, as num2words does. `number` is from 0 to 999,999.
std::string number_words(int64_t number);

// Replaces the placeholder of each video in a prompt whose images are there. kBadInput unless there
// are as many placeholders as videos, and for more than kMaxImageTokens together; kUnsupported for
// a processor without videos.
Result<std::string> expand_videos(const ImageProcessor& processor, std::string_view prompt,
                                  std::span<const VideoLayout> videos, const std::string& where);

}  // namespace ferry::prompt
