// A video is given as its frames: pictures in a folder, in the order of their names. Films are not
// decoded.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/dtype.h"
#include "core/result.h"
#include "core/thread_pool.h"
#include "media/image.h"
#include "media/pixel_values.h"
#include "media/video_settings.h"

namespace ferry::media {

struct Video {
  std::string path;                 // of the folder
  std::vector<std::string> frames;  // paths, in order
  double rate = 0;                  // frames of a second
};

// Lists the frames of a folder. Names that begin with a dot are left out, and numbers in names are
// compared as numbers. kUnsupported, with what to do, for a file such as a film; kUsage for a
// folder without a rate; kBadInput for one without frames or with too many, and for a rate that is
// none.
Result<Video> open_video(const std::string& path, std::optional<double> rate);

// Whether `first` comes before `second` in the order of names.
bool comes_before(const std::string& first, const std::string& second);

// Reads the frames that a video processor takes, and makes them inputs of a vision encoder, group
// by group, so that memory does not grow with the video.
class VideoReader {
 public:
  // Reads the first frame that is taken. kBadInput for a video that the reference refuses, and one
  // that becomes more than kMaxVideoPixels. `pool` must outlive the reader.
  static Result<VideoReader> open(Video video, const VideoSettings& settings, ThreadPool& pool);

  const Video& video() const { return video_; }
  const std::vector<int64_t>& taken() const { return taken_; }  // numbers of frames
  Size size() const { return size_; }                           // of every frame in its file
  Size target() const { return target_; }                       // of every frame as it is encoded
  Grid grid() const { return grid_; }  // of patches; 0 x 0 where a frame is one tile
  // A group is as many frames as a patch has; the last is filled up with its last frame.
  int64_t groups() const;
  int64_t tokens() const;  // of a group; 0 where the processor states them
  // The values of a group: [1,3,S,S], or [patches, 3 frames patch^2] for patches, or [1,P,3
  // patch^2] for a list of patches.
  Shape group_shape() const;
  // kBadInput for a frame of another size than the first, and for one that cannot be read.
  Result<std::vector<float>> group(int64_t number) const;

  // The time of a frame, by its place among those that are taken, and that of the video, in
  // seconds.
  double seconds_of(int64_t frame) const;
  double seconds() const { return static_cast<double>(video_.frames.size()) / video_.rate; }
  // The seconds between the groups of frames, as Qwen2_5_VLProcessor computes them.
  double group_seconds() const;

 private:
  VideoReader(Video video, const VideoSettings& settings, ThreadPool& pool)
      : video_(std::move(video)), settings_(settings), pool_(&pool) {}
  Result<Image> frame(int64_t place) const;

  Video video_;
  VideoSettings settings_;
  ThreadPool* pool_;
  std::vector<int64_t> taken_;
  Size size_ = {}, target_ = {};
  Grid grid_ = {};
};

// The pixels of all frames of a video that are encoded.
inline constexpr int64_t kMaxVideoPixels = int64_t{1} << 28;

}  // namespace ferry::media
