#include "proof/prompt_videos.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <utility>

#include "proof/row_ports.h"
#include "runner/picture_tiles.h"
#include "runner/token_embedder.h"

namespace ferry::proof {
namespace {

constexpr int64_t kMostFrames = 1 << 16;  // of a video

}  // namespace

std::string patches_name(bool films) { return films ? "pixel_values_videos" : "pixel_values"; }

Status check_videos_of(const ReferencePrompt& prompt, const packer::Manifest& manifest,
                       const std::string& who) {
  if (!prompt.has_videos()) return {};
  const bool takes = manifest.image_grid || manifest.video_token_id;
  if (takes && !runner::has_placed_rows(manifest)) return {};
  return fail(ErrorCode::kUnsupported, who + " has videos, which the bundle does not take");
}

bool has_groups_apart(const PromptImages& images) {
  const size_t groups = images.shapes.size() - images.stills;
  return images.runs.size() == images.shapes.size() && groups != images.video_groups.size();
}

namespace {

// Returns how far the groups of frames of each video are apart in places in time.
Result<std::vector<float>> steps_of(const Reference& reference, const ReferencePrompt& prompt,
                                    const packer::Manifest& manifest, PromptImages& images) {
  constexpr const char* kSeconds = "second_per_grid_ts";
  const size_t videos = images.video_groups.size();
  if (prompt.has(kSeconds)) {
    images.group_seconds =
        FERRY_TRY(reference.floats(prompt, kSeconds, {static_cast<int64_t>(videos)}));
  }
  std::vector<float> steps(videos, 1.0F);
  if (!manifest.tokens_per_second) return steps;
  if (!images.group_seconds.empty()) steps = images.group_seconds;
  for (float& step : steps) {
    step *= static_cast<float>(*manifest.tokens_per_second);
    if (step >= 0 && step <= runner::kMostFrameStep) continue;
    return bad_input(fmt::format("{}: {}: groups of frames are {} places apart in time",
                                 name_of(reference, prompt), kSeconds, step));
  }
  return steps;
}

}  // namespace

Status place_videos(const Reference& reference, const ReferencePrompt& prompt,
                    const packer::Manifest& manifest, PromptImages& images) {
  const std::string who = name_of(reference, prompt);
  const size_t videos = images.video_groups.size(), stills = images.stills;
  if (images.runs.size() != stills + videos) {
    return bad_input(fmt::format("{}: {} runs of placeholders for {} videos of {} groups of frames",
                                 who, images.runs.size() - std::min(images.runs.size(), stills),
                                 videos, images.shapes.size() - stills));
  }
  const std::vector<float> steps = FERRY_TRY(steps_of(reference, prompt, manifest, images));
  size_t shape = stills;
  for (size_t i = 0; i < videos; ++i) {
    PromptImages::Run& run = images.runs[stills + i];
    run.grid_rows = images.shapes[shape].rows / images.grid->merge_size;
    run.grid_columns = images.shapes[shape].columns / images.grid->merge_size;
    run.grid_frames = images.video_groups[i];
    run.frame_step = steps[i];
    shape += static_cast<size_t>(run.grid_frames);
    if (run.count == run.grid_frames * run.grid_rows * run.grid_columns) continue;
    return bad_input(fmt::format("{}: {} placeholders for a video of {} x {} x {} blocks", who,
                                 run.count, run.grid_frames, run.grid_rows, run.grid_columns));
  }
  return {};
}

Status read_tiled_videos(const Reference& reference, const ReferencePrompt& prompt,
                         const packer::Manifest& manifest, PromptImages& images) {
  const std::string who = name_of(reference, prompt), name = patches_name(/*films=*/true);
  const Shape tile = tile_shape(manifest), shape = reference.shape(prompt, name);
  images.tiled =
      runner::PictureTiles::in(manifest, tile, {1, rows_of_tile(manifest), manifest.hidden_size});
  const bool fits = images.tiled && shape.size() == 5 && shape[0] >= 1 && shape[1] >= 1 &&
                    shape[0] <= kMostFrames && shape[1] <= kMostFrames &&
                    Shape(shape.end() - 3, shape.end()) == Shape(tile.begin() + 1, tile.end());
  if (!fits) {
    return bad_input(fmt::format("{}: {} are {}, the vision encoder takes tiles of {}", who, name,
                                 to_string(shape), to_string(tile)));
  }
  images.pixels = FERRY_TRY(reference.floats(prompt, name, shape));
  images.pixel_shape = {shape[0] * shape[1], tile[1], tile[2], tile[3]};
  images.video_groups.assign(static_cast<size_t>(shape[0]), shape[1]);
  images.shapes.assign(static_cast<size_t>(images.pixel_shape[0]), ImageShape{1, 1});
  return {};
}

Status read_listed_videos(const Reference& reference, const ReferencePrompt& prompt,
                          PromptImages& images) {
  constexpr const char* kFrames = "num_frames_per_video";
  const std::string who = name_of(reference, prompt);
  if (!prompt.has(kFrames)) return bad_input(fmt::format("{}: has no {}", who, kFrames));
  const Shape shape = reference.shape(prompt, kFrames);
  const int64_t all = images.pixel_shape[0];
  images.video_groups = FERRY_TRY(reference.integers(prompt, kFrames, shape));
  int64_t counted = 0;
  for (const int64_t frames : images.video_groups) {
    counted = frames < 1 || frames > all - counted ? all + 1 : counted + frames;
    if (counted > all) break;
  }
  if (counted != all) {
    return bad_input(
        fmt::format("{}: {} does not divide {} frames into videos", who, kFrames, all));
  }
  return {};
}

}  // namespace ferry::proof
