// Settings of the processing of videos that a checkpoint's processor files state, and what follows
// from them: which frames of a video are taken, and how large they become. The rules are those of
// the classes of transformers 5.23: Qwen2VLVideoProcessor, Qwen3VLVideoProcessor,
// SmolVLMVideoProcessor, InternVLVideoProcessor, Gemma4VideoProcessor and
// LlavaOnevisionVideoProcessor.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "media/image.h"
#include "media/settings.h"

namespace ferry::media {

// The most frames that a video may have, and the most that are taken of it.
inline constexpr int64_t kMaxVideoFrames = 1 << 20;
inline constexpr int64_t kMaxTakenFrames = 1 << 14;

enum class VideoKind {
  kQwen2Vl,         // Qwen2-VL, Qwen2.5-VL: a frame has a number of pixels
  kQwen3Vl,         // Qwen3-VL, Qwen3.5: all frames together have a number of pixels
  kSmolVlm,         // a frame is a tile, first made as large as the longest edge says
  kInternVl,        // a frame is a tile
  kGemma4,          // a frame is a list of patches
  kLlavaOnevision,  // a frame is a tile, whose features are made fewer
};

struct VideoSettings {
  VideoKind kind = VideoKind::kQwen2Vl;
  Settings frame = {};                // of a frame as a picture
  bool samples = false;               // else all frames are taken
  std::optional<double> rate = {};    // the frames of a second that are taken
  std::optional<int64_t> count = {};  // the frames that are taken
  int64_t least_frames = 4, most_frames = 768;
  bool caps_pixels = false;      // by max_tokens and the number of frames
  int64_t max_tokens = 128'000;  // Qwen2Vl: of a video; Qwen3Vl: of a frame
  // For InternVl: the place of the first frame; nullopt is the middle of a step.
  std::optional<double> shift = {};
  int64_t frame_tokens = 0;  // for LlavaOnevision: of a frame

  // Returns the frames that become one row of patches in time.
  int64_t group() const { return frame.any_shape() ? frame.frames : 1; }
  // Returns whether frames are pixel_values of the reference, as images are.
  bool frames_are_images() const {
    return kind == VideoKind::kSmolVlm || kind == VideoKind::kInternVl;
  }
};

// The files that may state them: the member video_processor of processor_config.json if there is
// one, otherwise video_preprocessor_config.json, otherwise preprocessor_config.json. Empty texts
// stand for absent files.
struct VideoFiles {
  std::string_view processor, video, preprocessor;
};
inline constexpr const char* kVideoPreprocessorFile = "video_preprocessor_config.json";

// kIo if there is none of the files; kUnsupported, with the name, for unknown classes, fields and
// values. `directory` begins the messages.
Result<VideoSettings> video_settings_from(const VideoFiles& files, const std::string& directory);
// Returns the settings of the checkpoint in `directory`.
Result<VideoSettings> load_video_settings(const std::string& directory);

// Returns the numbers of the frames that are taken of `total`, of which a second has `rate`, in
// ascending order. kBadInput for a video that the reference refuses, and one too long.
Result<std::vector<int64_t>> taken_frames(const VideoSettings& settings, int64_t total,
                                          double rate);

// For Qwen2Vl and Qwen3Vl: returns the size to which `frames` frames of this size are resized.
// kBadInput for a video that the reference refuses.
Result<Size> video_size(Size frame, int64_t frames, const VideoSettings& settings);

}  // namespace ferry::media
