#include "proof/prompt_videos.h"

#include <fmt/format.h>

#include "runner/token_embedder.h"

namespace ferry::proof {

std::string patches_name(const ReferencePrompt& prompt) {
  return prompt.has_videos() ? "pixel_values_videos" : "pixel_values";
}
std::string grids_name(const ReferencePrompt& prompt) {
  return prompt.has_videos() ? "video_grid_thw" : "image_grid_thw";
}

Status check_videos_of(const ReferencePrompt& prompt, const packer::Manifest& manifest,
                       const std::string& who) {
  if (!prompt.has_videos()) return {};
  const bool others = prompt.has("pixel_values") || prompt.needs_sound();
  if (!others && manifest.image_grid && !runner::has_placed_rows(manifest)) return {};
  return fail(ErrorCode::kUnsupported, others
                                           ? who + " has videos and images or sounds: not supported"
                                           : who + " has videos, which the bundle does not take");
}

bool has_groups_apart(const PromptImages& images) {
  const size_t groups = images.shapes.size();
  return images.runs.size() == groups && groups != images.video_groups.size();
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
  const size_t videos = images.video_groups.size(), groups = images.shapes.size();
  if (images.runs.size() != videos) {
    return bad_input(fmt::format("{}: {} runs of placeholders for {} videos of {} groups of frames",
                                 who, images.runs.size(), videos, groups));
  }
  const std::vector<float> steps = FERRY_TRY(steps_of(reference, prompt, manifest, images));
  size_t shape = 0;
  for (size_t i = 0; i < videos; ++i) {
    PromptImages::Run& run = images.runs[i];
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

}  // namespace ferry::proof
