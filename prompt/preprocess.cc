#include "prompt/preprocess.h"

#include <algorithm>
#include <optional>
#include <span>
#include <utility>

#include "core/interrupt.h"
#include "core/text.h"
#include "formats/safetensors/writer.h"
#include "media/pixel_values.h"
#include "media/settings.h"
#include "packer/bundle_reader.h"
#include "prompt/image_input.h"

namespace ferry::prompt {
namespace {

std::span<const std::byte> bytes_view(const auto& values) {
  return std::as_bytes(std::span(values));
}

Shape grid_shape(const media::PixelValues& pixels) {
  return pixels.grids.empty() ? Shape() : Shape{std::ssize(pixels.grids) / 3, 3};
}

Shape sizes_shape(const media::PixelValues& pixels) {
  return pixels.image_sizes.empty() ? Shape() : Shape{std::ssize(pixels.image_sizes) / 2, 2};
}

// The values of the videos of a prompt; empty where the frames are among the images.
struct VideoValues {
  Shape shape = {};
  std::vector<float> values = {};
  std::vector<int64_t> grids = {};  // groups of frames, rows and columns of patches: [videos,3]
  // For Gemma4: the column and the row of each patch, [frames,P,2], and the frames of each video.
  Shape position_shape = {};
  std::vector<int64_t> positions = {};
  std::vector<int64_t> frames = {};
};

void add_videos(const VideoValues& videos, std::vector<formats::TensorData>& tensors) {
  if (videos.values.empty()) return;
  tensors.push_back(
      {{"pixel_values_videos", DType::kF32, videos.shape}, bytes_view(videos.values)});
  const auto add = [&](const char* name, Shape shape, const std::vector<int64_t>& values) {
    if (!values.empty()) {
      tensors.push_back({{name, DType::kI64, std::move(shape)}, bytes_view(values)});
    }
  };
  add("video_grid_thw", {std::ssize(videos.grids) / 3, 3}, videos.grids);
  add("video_position_ids", videos.position_shape, videos.positions);
  add("num_frames_per_video", {std::ssize(videos.frames)}, videos.frames);
}

// Tensors that are empty are not written.
Status write(const std::string& path, const media::PixelValues& pixels, const VideoValues& videos,
             const std::optional<PreprocessedPrompt>& prompt) {
  std::vector<formats::TensorData> tensors;
  add_videos(videos, tensors);
  if (prompt && !prompt->group_seconds.empty()) {
    tensors.push_back({{"second_per_grid_ts", DType::kF32, {std::ssize(prompt->group_seconds)}},
                       bytes_view(prompt->group_seconds)});
  }
  if (!pixels.shape.empty()) {
    tensors.push_back({{"pixel_values", DType::kF32, pixels.shape}, bytes_view(pixels.values)});
  }
  if (!pixels.mask_shape.empty()) {
    tensors.push_back(
        {{"pixel_attention_mask", DType::kI64, pixels.mask_shape}, bytes_view(pixels.mask)});
  }
  if (!pixels.position_shape.empty()) {
    tensors.push_back(
        {{"image_position_ids", DType::kI64, pixels.position_shape}, bytes_view(pixels.positions)});
  }
  const Shape sides = {std::ssize(pixels.spatial_shapes) / 2, 2};
  if (!pixels.spatial_shapes.empty() && pixels.position_shape.empty()) {
    tensors.push_back({{"spatial_shapes", DType::kI64, sides}, bytes_view(pixels.spatial_shapes)});
  }
  if (!pixels.grids.empty()) {
    tensors.push_back(
        {{"image_grid_thw", DType::kI64, grid_shape(pixels)}, bytes_view(pixels.grids)});
  }
  if (!pixels.image_sizes.empty()) {
    tensors.push_back(
        {{"image_sizes", DType::kI64, sizes_shape(pixels)}, bytes_view(pixels.image_sizes)});
  }
  if (!pixels.image_counts.empty()) {
    tensors.push_back({{"batch_num_images", DType::kI64, {std::ssize(pixels.image_counts)}},
                       bytes_view(pixels.image_counts)});
  }
  const auto add = [&](const std::string& name, const std::vector<int64_t>& values) {
    const Shape shape = {1, std::ssize(values)};
    if (!values.empty()) tensors.push_back({{name, DType::kI64, shape}, bytes_view(values)});
  };
  if (prompt) {
    add("input_ids", prompt->expanded.ids);
    add(prompt->token_types_name, prompt->token_types);
  }
  return formats::write_safetensors(path, tensors);
}

Result<ExpandedPrompt> expand(ImagePrompt& prompts, const PromptRequest& request,
                              std::span<const ImageLayout> images,
                              std::span<const VideoLayout> videos) {
  if (request.form == PromptRequest::Form::kPlain) {
    return prompts.plain(request.text, request.where, images, {}, videos);
  }
  const bool messages = request.form == PromptRequest::Form::kMessages;
  const ChatMessage message = {"user", request.text, images.size(), 0, videos.size()};
  const std::string chat = messages ? request.text : prompts.chat_of({&message, 1});
  return prompts.chat(chat, request.where, request.time, images, {}, videos);
}

using MaybeBundle = std::optional<packer::Bundle>;

Result<MaybeBundle> open_bundle(const PreprocessRequest& request, ThreadPool& pool) {
  if (request.bundle.empty()) return MaybeBundle();
  MaybeBundle bundle =
      FERRY_TRY(packer::Bundle::open(request.bundle, /*check_digests=*/false, pool));
  FERRY_RETURN_IF_ERROR(expect_vision_encoder(*bundle));
  return bundle;
}

Result<media::Settings> load_settings(const PreprocessRequest& request, const MaybeBundle& bundle) {
  media::Settings settings =
      FERRY_TRY(bundle ? image_settings(*bundle) : media::load_settings(request.checkpoint));
  if (bundle) FERRY_RETURN_IF_ERROR(check_tiles(*bundle, settings));
  if (request.pan_and_scan) {
    const std::string& where = bundle ? request.bundle : request.checkpoint;
    FERRY_RETURN_IF_ERROR(media::set_pan_and_scan(settings, printable(where)));
  }
  return settings;
}

Result<ImagePrompt> open_prompts(const PreprocessRequest& request, const MaybeBundle& bundle) {
  if (!bundle) return ImagePrompt::open(request.checkpoint);
  ImagePrompt prompts = FERRY_TRY(ImagePrompt::open(bundle->path(), reader_of(*bundle)));
  FERRY_RETURN_IF_ERROR(check_placeholders(*bundle, prompts));
  return prompts;
}

Result<PreprocessedPrompt> make_prompt(const PreprocessRequest& request, const MaybeBundle& bundle,
                                       const std::vector<PreprocessedImage>& images,
                                       const std::vector<PreprocessedVideo>& videos) {
  ImagePrompt prompts = FERRY_TRY(open_prompts(request, bundle));
  std::vector<ImageLayout> layouts;
  for (const auto& image : images) layouts.push_back(layout_of(image));
  std::vector<VideoLayout> video_layouts;
  for (const auto& video : videos) video_layouts.push_back(video.layout);
  PreprocessedPrompt out;
  out.expanded = FERRY_TRY(expand(prompts, *request.prompt, layouts, video_layouts));
  for (const auto& video : videos) {
    if (!prompts.spaces_videos()) break;
    out.group_seconds.push_back(static_cast<float>(video.group_seconds));
  }
  out.tokens_per_tile = prompts.tokens_per_tile();
  out.placeholder_id = prompts.placeholder_id();
  out.placeholders = std::ranges::count(out.expanded.ids, out.placeholder_id);
  out.token_types_name = prompts.token_types();
  if (out.token_types_name.empty()) return out;
  for (const int64_t id : out.expanded.ids) {
    const bool image = !out.expanded.two_way && id == out.placeholder_id;
    const bool video = !image && !videos.empty() && id == prompts.video_id();
    out.token_types.push_back(image ? 1 : video ? 2 : 0);
  }
  return out;
}

Result<media::PixelValues> cut_images(const PreprocessRequest& request, const MaybeBundle& bundle,
                                      ThreadPool& pool, std::vector<PreprocessedImage>& images) {
  if (request.images.empty()) return media::PixelValues{};
  media::Settings settings = FERRY_TRY(load_settings(request, bundle));
  settings.alone = request.images.size() == 1;
  media::Sample sample;
  for (const std::string& path : request.images) {
    FERRY_RETURN_IF_ERROR(check_interrupt());
    const media::Image image = FERRY_TRY(media::read_picture(path, settings));
    sample.push_back(FERRY_TRY(cut_picture(image, path, settings, request.backend, pool)));
    images.push_back(describe_cut(path, image.size, sample.back(), settings));
  }
  return media::pixel_values(std::span(&sample, 1), settings, request.backend);
}

// Puts frames that are tiles among the images.
Status add_tiles(const media::VideoSettings& settings, std::span<const PreprocessedVideo> videos,
                 std::vector<float> values, media::PixelValues& pixels, const std::string& where) {
  const int64_t side = settings.frame.tile, count = std::ssize(videos);
  int64_t most = 0, all = 0;
  for (const PreprocessedVideo& video : videos) {
    most = std::max(most, video.layout.groups);
    all += video.layout.groups;
  }
  if (all != most * count) {
    return fail(ErrorCode::kUnsupported,
                where + ": videos with different numbers of frames in one file are not supported");
  }
  pixels.values = std::move(values);
  if (!settings.frame.has_mask()) {
    pixels.shape = {all, 3, side, side};
    return {};
  }
  pixels.shape = {count, most, 3, side, side};
  pixels.mask_shape = {count, most, side, side};
  pixels.mask.assign(static_cast<size_t>(all * side * side), 1);
  return {};
}

Result<media::VideoSettings> load_video_settings(const PreprocessRequest& request,
                                                 const MaybeBundle& bundle) {
  if (!bundle) return media::load_video_settings(request.checkpoint);
  const ImagePrompt prompts = FERRY_TRY(open_prompts(request, bundle));
  if (!prompts.takes_videos()) {
    return fail(
        ErrorCode::kUnsupported,
        printable(request.bundle) + ": videos are not supported with the processor of this model");
  }
  media::VideoSettings settings = FERRY_TRY(video_settings(*bundle));
  FERRY_RETURN_IF_ERROR(check_videos(*bundle, settings, prompts));
  return settings;
}

// Adds what the reference says beside the values of a video. The shape is that of a group.
void add_shapes(const media::VideoReader& reader, const media::VideoSettings& settings,
                VideoValues& out) {
  const auto [columns, rows] = reader.grid();
  out.shape = reader.group_shape();
  if (settings.frame.any_shape()) {
    out.grids.insert(out.grids.end(), {reader.groups(), rows, columns});
  }
  if (!settings.frame.has_patches()) return;
  const std::vector<int64_t> places = media::patch_places(rows, columns, out.shape[1]);
  for (int64_t frame = 0; frame < reader.groups(); ++frame) {
    out.positions.insert(out.positions.end(), places.begin(), places.end());
  }
  out.frames.push_back(reader.groups());
}

// Makes the shape of a group that of all videos.
Status settle_shape(const media::VideoSettings& settings, std::span<const PreprocessedVideo> videos,
                    const std::string& where, VideoValues& out) {
  if (settings.frame.any_shape()) {
    out.shape[0] = std::ssize(out.values) / out.shape[1];
    return {};
  }
  if (settings.frame.has_patches()) {
    out.shape[0] = std::ssize(out.values) / (out.shape[1] * out.shape[2]);
    out.position_shape = {out.shape[0], out.shape[1], 2};
    return {};
  }
  const int64_t frames = videos.front().layout.groups;
  for (const PreprocessedVideo& video : videos) {
    if (video.layout.groups == frames) continue;
    return bad_input(where +
                     ": videos with different numbers of frames, of which the reference "
                     "makes no tensor");
  }
  out.shape[0] = frames;
  out.shape.insert(out.shape.begin(), std::ssize(videos));
  return {};
}

Result<VideoValues> cut_videos(const PreprocessRequest& request, const MaybeBundle& bundle,
                               ThreadPool& pool, std::vector<PreprocessedVideo>& videos,
                               media::PixelValues& pixels) {
  VideoValues out;
  if (request.videos.empty()) return out;
  const std::string where = printable(bundle ? request.bundle : request.checkpoint);
  const media::VideoSettings settings = FERRY_TRY(load_video_settings(request, bundle));
  const bool images = settings.frames_are_images();
  if (images && !request.images.empty()) {
    return fail(ErrorCode::kUnsupported,
                where +
                    ": images and videos in one file are not supported, because both are "
                    "pixel_values here");
  }
  int64_t area = 0;
  for (const std::string& path : request.videos) {
    const media::Video video = FERRY_TRY(media::open_video(path, request.video_rate));
    const auto reader = FERRY_TRY(media::VideoReader::open(video, settings, pool));
    area += std::ssize(reader.taken()) * reader.target().width * reader.target().height;
    if (area > media::kMaxVideoPixels) {
      return bad_input(where + ": the videos have too many pixels together");
    }
    videos.push_back(describe_video(reader, settings));
    for (int64_t group = 0; group < reader.groups(); ++group) {
      FERRY_RETURN_IF_ERROR(check_interrupt());
      const std::vector<float> values = FERRY_TRY(reader.group(group));
      out.values.insert(out.values.end(), values.begin(), values.end());
    }
    if (!images) add_shapes(reader, settings, out);
  }
  if (images) {
    FERRY_RETURN_IF_ERROR(add_tiles(settings, videos, std::move(out.values), pixels, where));
    return VideoValues{};
  }
  FERRY_RETURN_IF_ERROR(settle_shape(settings, videos, where, out));
  return out;
}

}  // namespace

ImageLayout layout_of(const PreprocessedImage& image) {
  if (image.blocks != media::Grid{}) {
    return {.tiles = std::ssize(image.tokens), .tokens = image.tokens};
  }
  // Tiles that have rows together are one run.
  const bool together = image.tokens.size() == 1 && image.tiles > 1;
  if (together) return {.tiles = 1, .tokens = image.tokens};
  return {image.grid.rows, image.grid.columns, static_cast<int64_t>(image.tiles), image.tokens};
}

Result<media::TiledImage> cut_picture(const media::Image& image, const std::string& path,
                                      const media::Settings& settings, media::Backend backend,
                                      ThreadPool& pool) {
  auto tiled = media::cut(image, settings, backend, pool);
  if (tiled) return tiled;
  return fail(tiled.error().code, printable(path) + ": " + tiled.error().message);
}

PreprocessedImage describe_cut(const std::string& path, media::Size size,
                               const media::TiledImage& cut, const media::Settings& settings) {
  PreprocessedImage out = {path, size, cut.grid, cut.tiles.size(), cut.tokens(settings)};
  if (settings.any_shape()) {
    out.blocks = {cut.grid.columns / settings.merge, cut.grid.rows / settings.merge};
  }
  return out;
}

Result<PreprocessReport> preprocess(const PreprocessRequest& request, ThreadPool& pool) {
  PreprocessReport report;
  const MaybeBundle bundle = FERRY_TRY(open_bundle(request, pool));
  media::PixelValues pixels = FERRY_TRY(cut_images(request, bundle, pool, report.images));
  const VideoValues videos = FERRY_TRY(cut_videos(request, bundle, pool, report.videos, pixels));
  if (request.prompt) {
    report.prompt = FERRY_TRY(make_prompt(request, bundle, report.images, report.videos));
  }
  if (!request.output.empty()) {
    FERRY_RETURN_IF_ERROR(write(request.output, pixels, videos, report.prompt));
  }
  report.video_values = videos.shape;
  if (!videos.grids.empty()) report.video_grid = {std::ssize(videos.grids) / 3, 3};
  report.video_positions = videos.position_shape;
  if (!videos.frames.empty()) report.frame_counts = {std::ssize(videos.frames)};
  report.pixel_values = pixels.shape;
  report.pixel_attention_mask = pixels.mask_shape;
  report.image_grid = grid_shape(pixels);
  report.image_sizes = sizes_shape(pixels);
  if (!pixels.image_counts.empty()) report.image_counts = {std::ssize(pixels.image_counts)};
  report.image_positions = pixels.position_shape;
  const int64_t sides = pixels.position_shape.empty() ? std::ssize(pixels.spatial_shapes) : 0;
  if (sides > 0) report.spatial_shapes = {sides / 2, 2};
  return report;
}

}  // namespace ferry::prompt
