// The parts of a prompt that are videos: their settings, what is said about them, and their rows.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/result.h"
#include "core/thread_pool.h"
#include "media/video.h"
#include "media/video_settings.h"
#include "packer/bundle_reader.h"
#include "prompt/image_prompt.h"
#include "prompt/video_text.h"
#include "runner/token_embedder.h"
#include "runner/vision_encoder.h"

namespace ferry::prompt {

// A folder of frames after the video processor.
struct PreprocessedVideo {
  std::string path;
  media::Size size;                 // of a frame
  int64_t frames = 0;               // in the folder
  double rate = 0;                  // frames of a second
  std::vector<int64_t> taken = {};  // the numbers of the frames that the processor takes
  media::Grid grid = {};            // of patches of a frame; 0 x 0 where frames are tiles
  media::Grid blocks = {};          // of rows of features of a group of frames; 0 x 0 for tiles
  double group_seconds = 0;         // between groups of frames
  VideoLayout layout = {};
};

// A video after the vision encoder.
struct EncodedVideo {
  PreprocessedVideo file;
  std::vector<float> features;  // [groups * rows of a group, runner::row_width()]
  float step = 1;               // of its groups of frames, in places in time
};

PreprocessedVideo describe_video(const media::VideoReader& reader,
                                 const media::VideoSettings& settings);

std::vector<VideoLayout> layouts_of(std::span<const EncodedVideo> videos);

// Returns the rows of the videos of an expanded prompt. They are views of the features.
std::vector<runner::EmbeddingRows> rows_of(const ExpandedPrompt& prompt,
                                           std::span<const EncodedVideo> videos);

// Reads the settings in the processor files of a bundle; errors as for
// media::video_settings_from().
Result<media::VideoSettings> video_settings(const packer::Bundle& bundle);
// Returns kBadInput unless the processor makes what the bundle's vision encoder takes, and the
// placeholder of its prompts is that of the config. kUnsupported for pictures of one size.
Status check_videos(const packer::Bundle& bundle, const media::VideoSettings& settings,
                    const ImagePrompt& prompts);

// Encodes a video group by group.
Result<EncodedVideo> encode_video(const media::Video& video, const media::VideoSettings& settings,
                                  const packer::Bundle& bundle, runner::VisionEncoder& encoder,
                                  ThreadPool& pool);

}  // namespace ferry::prompt
