#include "prompt/video_input.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/interrupt.h"
#include "core/text.h"
#include "prompt/expand.h"
#include "prompt/image_input.h"

namespace ferry::prompt {

PreprocessedVideo describe_video(const media::VideoReader& reader,
                                 const media::VideoSettings& settings) {
  PreprocessedVideo out;
  out.path = reader.video().path;
  out.size = reader.size();
  out.frames = std::ssize(reader.video().frames);
  out.rate = reader.video().rate;
  out.taken = reader.taken();
  out.grid = reader.grid();
  const int merge = settings.frame.merge;
  if (settings.frame.any_shape()) {
    out.blocks = {out.grid.columns / merge, out.grid.rows / merge};
  }
  out.group_seconds = reader.group_seconds();
  out.layout.groups = reader.groups();
  out.layout.tokens = settings.frame_tokens > 0 ? settings.frame_tokens : reader.tokens();
  out.layout.duration = reader.seconds();
  const int64_t group = settings.group(), last = std::ssize(out.taken) - 1;
  for (int64_t first = 0; first <= last; first += group) {
    const double end = reader.seconds_of(std::min(first + group - 1, last));
    out.layout.seconds.push_back((reader.seconds_of(first) + end) / 2);
  }
  return out;
}

std::vector<VideoLayout> layouts_of(std::span<const EncodedVideo> videos) {
  std::vector<VideoLayout> layouts;
  for (const EncodedVideo& video : videos) layouts.push_back(video.file.layout);
  return layouts;
}

std::vector<runner::EmbeddingRows> rows_of(const ExpandedPrompt& prompt,
                                           std::span<const EncodedVideo> videos) {
  std::vector<runner::EmbeddingRows> rows;
  for (size_t i = 0; i < prompt.videos.size() && i < videos.size(); ++i) {
    const std::vector<int64_t>& firsts = prompt.videos[i];
    const size_t size = videos[i].features.size() / firsts.size();
    for (size_t run = 0; run < firsts.size(); ++run) {
      runner::EmbeddingRows one;
      one.first = firsts[run];
      one.values = std::span(videos[i].features).subspan(run * size, size);
      if (const media::Grid& blocks = videos[i].file.blocks; blocks != media::Grid{}) {
        one.grid_rows = blocks.rows;
        one.grid_columns = blocks.columns;
        one.grid_frames = videos[i].file.layout.groups / std::ssize(firsts);
        one.frame_step = videos[i].step;
        if (one.grid_frames > 1) one.prompt_tokens = std::ssize(prompt.ids);
      }
      rows.push_back(one);
    }
  }
  return rows;
}

Result<media::VideoSettings> video_settings(const packer::Bundle& bundle) {
  constexpr uint64_t kMost = uint64_t{1} << 20;
  const text::ReadFile read = reader_of(bundle);
  const std::string processor = FERRY_TRY(read("processor_config.json", kMost));
  const std::string video = FERRY_TRY(read(media::kVideoPreprocessorFile, kMost));
  const std::string preprocessor = FERRY_TRY(read("preprocessor_config.json", kMost));
  return media::video_settings_from({processor, video, preprocessor},
                                    printable(bundle.text_directory()));
}

namespace {

// Returns kBadInput unless the frames are what the vision encoder takes.
Status check_frames(const packer::Bundle& bundle, const media::VideoSettings& settings,
                    const runner::VisionEncoder::Sizes& sizes) {
  const media::Settings& frame = settings.frame;
  if (settings.frame_tokens > 0) {
    if (sizes.tiles && sizes.image_size == frame.tile &&
        sizes.tiles->rows_of_frame() == settings.frame_tokens) {
      return {};
    }
    return bad_input(fmt::format(
        "{}: the video processor makes frames of {} x {} pixels of {} tokens, the "
        "vision encoder takes {} x {} and makes {}",
        printable(bundle.path()), frame.tile, frame.tile, settings.frame_tokens, sizes.image_size,
        sizes.image_size, sizes.tiles ? sizes.tiles->rows_of_frame() : 0));
  }
  // A frame may have fewer patches than the list of a picture.
  const int64_t square = int64_t{frame.merge} * frame.merge;
  const bool fits = frame.has_patches() && sizes.patches >= frame.max_patches() &&
                    sizes.patches == sizes.rows * square &&
                    sizes.tile.back() == int64_t{3} * frame.patch * frame.patch;
  return fits ? Status() : check_tiles(bundle, frame);
}

// Computes the rows of a group of frames.
Result<std::vector<float>> encode_group(std::vector<float> pixels, const PreprocessedVideo& file,
                                        runner::VisionEncoder& encoder) {
  const runner::VisionEncoder::Sizes& sizes = encoder.sizes();
  if (sizes.patches > 0) pixels.resize(static_cast<size_t>(sizes.tile[1] * sizes.tile[2]), 0.0F);
  const ImageShape shape = sizes.tiles ? ImageShape{1, 1}  // of one tile
                                       : ImageShape{file.grid.rows, file.grid.columns};
  const auto shapes = std::span(&shape, shape.rows > 0 ? 1 : 0);
  return encoder.encode(pixels, shapes);
}

}  // namespace

Status check_videos(const packer::Bundle& bundle, const media::VideoSettings& settings,
                    const ImagePrompt& prompts) {
  const std::string where = printable(bundle.path());
  const runner::VisionEncoder::Sizes sizes = FERRY_TRY(runner::VisionEncoder::sizes_in(bundle));
  const packer::Manifest& manifest = bundle.manifest();
  if (sizes.picture || runner::has_placed_rows(manifest)) {
    return fail(ErrorCode::kUnsupported,
                where +
                    ": a bundle for pictures of one size takes no videos: convert without "
                    "--layout one-program");
  }
  FERRY_RETURN_IF_ERROR(check_frames(bundle, settings, sizes));
  // Frames that are images have the placeholder of these.
  if (prompts.video_id() == prompts.placeholder_id()) return {};
  if (!manifest.video_token_id) {
    return fail(ErrorCode::kUnsupported,
                where + ": the bundle states no video_token_id: convert it again");
  }
  if (prompts.video_id() == *manifest.video_token_id) return {};
  return bad_input(
      fmt::format("{}: the processor's placeholder of videos is token {}, the "
                  "config's video_token_id is {}",
                  where, prompts.video_id().value_or(-1), *manifest.video_token_id));
}

Result<EncodedVideo> encode_video(const media::Video& video, const media::VideoSettings& settings,
                                  const packer::Bundle& bundle, runner::VisionEncoder& encoder,
                                  ThreadPool& pool) {
  const media::VideoReader reader = FERRY_TRY(media::VideoReader::open(video, settings, pool));
  EncodedVideo out;
  out.file = describe_video(reader, settings);
  // Before anything is encoded, because memory grows with the rows.
  const int64_t own = out.file.layout.tokens, rows = own > 0 ? own : encoder.rows();
  const int64_t most = std::min(bundle.manifest().positions(), kMaxImageTokens);
  if (reader.groups() > most / std::max(rows, int64_t{1})) {
    return fail(ErrorCode::kUsage,
                fmt::format("{}: a video of {} x {} tokens does not fit into a context of {}: give "
                            "fewer frames",
                            printable(video.path), reader.groups(), rows, most));
  }
  for (int64_t group = 0; group < reader.groups(); ++group) {
    FERRY_RETURN_IF_ERROR(check_interrupt());
    std::vector<float> pixels = FERRY_TRY(reader.group(group));
    const std::vector<float> made = FERRY_TRY(encode_group(std::move(pixels), out.file, encoder));
    out.features.insert(out.features.end(), made.begin(), made.end());
  }
  if (const auto& tiles = encoder.sizes().tiles) {
    out.features = runner::pool_video(*tiles, out.features, static_cast<size_t>(encoder.width()));
  }
  if (const auto& rate = bundle.manifest().tokens_per_second) {
    out.step = static_cast<float>(*rate) * static_cast<float>(out.file.group_seconds);
  }
  return out;
}

}  // namespace ferry::prompt
