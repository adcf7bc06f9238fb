#include "prompt/image_input.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <numeric>
#include <utility>

#include "core/interrupt.h"
#include "core/program_interface.h"
#include "core/text.h"
#include "media/pixel_values.h"
#include "media/resample.h"

namespace ferry::prompt {
namespace {

constexpr uint64_t kMaxProcessorFile = uint64_t{1} << 20;

// Says how the patches of a processor differ from those of the encoder.
std::string grid_difference(const std::optional<ImageGrid>& grid, const media::Settings& settings) {
  if (!grid) return "the image processor makes patches, the vision encoder takes tiles";
  if (!settings.any_shape())
    return "the image processor makes tiles, the vision encoder takes patches";
  return fmt::format(
      "the image processor makes patches of {} x {} pixels and {} frames in blocks of {} x {}, the "
      "vision encoder takes {} x {}, {} and {} x {}",
      settings.patch, settings.patch, settings.frames, settings.merge, settings.merge,
      grid->patch_size, grid->patch_size, grid->temporal_patch_size, grid->merge_size,
      grid->merge_size);
}

}  // namespace

// Absent files have empty texts.
text::ReadFile reader_of(const packer::Bundle& bundle) {
  return [bundle](const std::string& name, uint64_t limit) -> Result<std::string> {
    return bundle.has_text(name) ? bundle.text(name, limit) : Result<std::string>(std::string());
  };
}

std::function<bool(std::string_view)> files_of(const packer::Bundle& bundle) {
  return [bundle](std::string_view name) { return bundle.has_text(std::string(name)); };
}

Result<media::Settings> image_settings(const packer::Bundle& bundle) {
  const text::ReadFile read = reader_of(bundle);
  const std::string preprocessor = FERRY_TRY(read("preprocessor_config.json", kMaxProcessorFile));
  const std::string processor = FERRY_TRY(read("processor_config.json", kMaxProcessorFile));
  return media::settings_from(preprocessor, processor, printable(bundle.text_directory()));
}

std::vector<ImageLayout> layouts_of(std::span<const EncodedImage> images) {
  std::vector<ImageLayout> layouts;
  for (const EncodedImage& image : images) layouts.push_back(layout_of(image.file));
  return layouts;
}

std::vector<runner::EmbeddingRows> rows_of(const ExpandedPrompt& prompt,
                                           std::span<const EncodedImage> images) {
  std::vector<runner::EmbeddingRows> rows;
  for (size_t i = 0; i < prompt.images.size() && i < images.size(); ++i) {
    const std::span<const float> features = images[i].features;
    const std::vector<int64_t>& tokens = images[i].file.tokens;
    const size_t tiles = prompt.images[i].size();
    const int64_t all = std::accumulate(tokens.begin(), tokens.end(), int64_t{0});
    size_t at = 0;
    for (size_t t = 0; t < tiles; ++t) {
      const size_t count = tokens.empty() ? features.size() / tiles
                                          : features.size() / static_cast<size_t>(all) *
                                                static_cast<size_t>(tokens[t]);
      rows.push_back({prompt.images[i][t], features.subspan(at, count), images[i].file.blocks.rows,
                      images[i].file.blocks.columns,
                      prompt.two_way ? std::ssize(prompt.ids) : int64_t{0}});
      at += count;
    }
  }
  return rows;
}

namespace {

// Whether placeholders of sounds are those of the processor.
bool hears_by_processor(const packer::Bundle& bundle) {
  return bundle.manifest().audio_row_frames.has_value();
}

}  // namespace

bool has_processor(const packer::Bundle& bundle) {
  return (runner::VisionEncoder::is_in(bundle) || hears_by_processor(bundle)) &&
         (bundle.has_text("processor_config.json") || bundle.has_text("preprocessor_config.json"));
}

Status expect_vision_encoder(const packer::Bundle& bundle) {
  if (runner::VisionEncoder::is_in(bundle)) return {};
  return fail(ErrorCode::kUsage,
              fmt::format("{}: this bundle takes no images: it has no component {}",
                          printable(bundle.path()), kVisionEncoderRole));
}

Result<ImageInput> ImageInput::open(const packer::Bundle& bundle) {
  if (!hears_by_processor(bundle)) FERRY_RETURN_IF_ERROR(expect_vision_encoder(bundle));
  ImagePrompt prompts =
      FERRY_TRY(ImagePrompt::open(printable(bundle.text_directory()), reader_of(bundle)));
  return ImageInput(bundle, std::move(prompts));
}

namespace {

// A list of patches has patches of equal sizes, in equal squares; it may have fewer.
Status check_patches(const packer::Bundle& bundle, const media::Settings& settings,
                     const runner::VisionEncoder::Sizes& sizes) {
  if (const auto& list = bundle.manifest().patch_list; list && settings.has_patches()) {
    if (settings.patch == list->patch_size && settings.merge == list->merge_size) return {};
  }
  const int64_t patches = settings.max_patches();
  const int64_t square = int64_t{settings.merge} * settings.merge;
  const Shape tile = {1, patches, int64_t{3} * settings.patch * settings.patch};
  const bool fits = sizes.patches >= patches && sizes.tile.back() == tile.back() &&
                    sizes.patches == sizes.rows * square;
  if (settings.has_patches() && fits) return {};
  return bad_input(fmt::format(
      "{}: the image processor makes tiles of {} with a token for {} patches, the vision "
      "encoder takes {} and makes {} tokens",
      printable(bundle.path()), to_string(tile), square, to_string(sizes.tile), sizes.rows));
}

// Tiles that have rows together become as many placeholders as rows.
Status check_tokens(const packer::Bundle& bundle, const media::Settings& settings,
                    const runner::VisionEncoder::Sizes& sizes) {
  const bool together = settings.kind == media::ProcessorKind::kPinpoints;
  const std::string where = printable(bundle.path());
  if (together != sizes.tiles.has_value()) {
    return bad_input(fmt::format("{}: the image processor makes {}, the vision encoder takes {}",
                                 where, together ? "pictures of several tiles" : "single tiles",
                                 together ? "single tiles" : "pictures of several tiles"));
  }
  if (!together) return {};
  const runner::PictureTiles& tiles = *sizes.tiles;
  if (tiles.resolutions != settings.pinpoints) {
    return bad_input(where +
                     ": image_grid_pinpoints of the image processor are not those of the config");
  }
  const bool equal = settings.feature_side == tiles.side &&
                     settings.base_tokens == tiles.side * tiles.side &&
                     settings.most_tiles == tiles.most_tiles;
  if (equal) return {};
  return bad_input(fmt::format(
      "{}: the processor has {} tokens for the whole picture and {} x {} for a tile, the vision "
      "encoder {} and {} x {}",
      where, settings.base_tokens, settings.feature_side, settings.feature_side,
      tiles.side * tiles.side, tiles.side, tiles.side));
}

}  // namespace

Status check_tiles(const packer::Bundle& bundle, const media::Settings& settings) {
  const auto sizes = FERRY_TRY(runner::VisionEncoder::sizes_in(bundle));
  if (settings.has_patches() || sizes.patches > 0 || bundle.manifest().patch_list)
    return check_patches(bundle, settings, sizes);
  const auto& grid = bundle.manifest().image_grid;
  if (grid.has_value() != settings.any_shape() ||
      (grid && (grid->patch_size != settings.patch || grid->merge_size != settings.merge ||
                grid->temporal_patch_size != settings.frames))) {
    return bad_input(
        fmt::format("{}: {}", printable(bundle.path()), grid_difference(grid, settings)));
  }
  if (settings.tile == sizes.image_size) return check_tokens(bundle, settings, sizes);
  return bad_input(
      fmt::format("{}: the image processor makes tiles of {} pixels a side, the vision "
                  "encoder takes {}",
                  printable(bundle.path()), settings.tile, sizes.image_size));
}

Status check_placeholders(const packer::Bundle& bundle, const ImagePrompt& prompts) {
  const auto& stated = bundle.manifest().image_token_id;
  if (stated && *stated != prompts.placeholder_id()) {
    return bad_input(
        fmt::format("{}: the processor's placeholder is token {}, the config's "
                    "image_token_id is {}",
                    printable(bundle.path()), prompts.placeholder_id(), *stated));
  }
  const auto sizes = FERRY_TRY(runner::VisionEncoder::sizes_in(bundle));
  return prompts.expect_tokens_per_tile(bundle.manifest().image_grid ? 0 : sizes.rows);
}

Status check_sound_placeholder(const packer::Bundle& bundle, const ImagePrompt& prompts) {
  const auto& stated = bundle.manifest().audio_token_id;
  const std::optional<int64_t> own = prompts.sound_id();
  if (own && own == stated) return {};
  if (!own) {
    return bad_input(
        fmt::format("{}: the tokenizer has no audio_token, which a prompt with a "
                    "sound needs",
                    printable(bundle.path())));
  }
  return bad_input(
      fmt::format("{}: the processor's placeholder of sounds is token {}, the config's "
                  "audio_token_id is {}",
                  printable(bundle.path()), *own, stated.value_or(-1)));
}

std::vector<ImageShape> shapes_of(const media::PixelValues& pixels) {
  std::vector<ImageShape> shapes;
  for (size_t i = 0; i + 1 < pixels.spatial_shapes.size(); i += 2) {
    shapes.push_back({pixels.spatial_shapes[i], pixels.spatial_shapes[i + 1]});
  }
  for (size_t i = 0; i + 2 < pixels.grids.size(); i += 3) {
    shapes.push_back({pixels.grids[i + 1], pixels.grids[i + 2]});
  }
  const bool together = pixels.shape.size() == 5 && pixels.mask_shape.empty();
  for (size_t i = 0; together && i + 1 < pixels.image_sizes.size(); i += 2) {
    shapes.push_back({pixels.image_sizes[i], pixels.image_sizes[i + 1]});
  }
  return shapes;
}

namespace {

// Computes the features of a picture that was cut.
Result<std::vector<float>> encode_cut(runner::VisionEncoder& encoder, const packer::Bundle& bundle,
                                      const media::Settings& settings,
                                      const media::PixelValues& pixels) {
  if (settings.kind != media::ProcessorKind::kPixtral) {
    if (encoder.sizes().patches == 0) return encoder.encode(pixels.values, shapes_of(pixels));
    Shape shape = pixels.shape;
    std::vector<float> lists = pixels.values;
    fit_list_length(shape, lists, encoder.sizes().patches);
    return encoder.encode(lists, shapes_of(pixels));
  }
  const ImageShape shape = {pixels.image_sizes[0] / settings.patch,
                            pixels.image_sizes[1] / settings.patch};
  const std::vector<float> patches = patches_of_planes(
      pixels.values, pixels.shape[2], pixels.shape[3], *bundle.manifest().image_grid, shape);
  return encoder.encode(patches, {&shape, 1});
}

}  // namespace

Status ImageInput::load_encoder(ThreadPool& pool, const runner::MethodOptions& options,
                                bool pan_and_scan) {
  FERRY_RETURN_IF_ERROR(expect_vision_encoder(bundle_));
  pool_ = &pool;
  settings_ = FERRY_TRY(image_settings(bundle_));
  FERRY_RETURN_IF_ERROR(check_tiles(bundle_, settings_));
  if (pan_and_scan) {
    FERRY_RETURN_IF_ERROR(media::set_pan_and_scan(settings_, printable(bundle_.path())));
  }
  FERRY_RETURN_IF_ERROR(check_placeholders(bundle_, prompts_));
  encoder_ = std::make_unique<runner::VisionEncoder>(
      FERRY_TRY(runner::VisionEncoder::load(bundle_, pool, options)));
  return {};
}

Result<std::vector<EncodedImage>> ImageInput::encode(std::span<const std::string> paths) {
  return encode_among(paths, 0);
}

Result<std::vector<EncodedImage>> ImageInput::encode_among(std::span<const std::string> paths,
                                                           size_t others) {
  std::vector<EncodedImage> images;
  settings_.alone = paths.size() + others == 1;
  for (const std::string& path : paths) {
    FERRY_RETURN_IF_ERROR(check_interrupt());
    constexpr media::Backend kBackend = media::Backend::kTorchvision;
    const media::Image image = resized(FERRY_TRY(media::read_picture(path, settings_)), kBackend);
    const media::Sample sample = {FERRY_TRY(cut_picture(image, path, settings_, kBackend, *pool_))};
    const media::TiledImage& cut = sample.front();
    const media::PixelValues pixels =
        media::pixel_values(std::span(&sample, 1), settings_, kBackend);
    auto features = FERRY_TRY(encode_cut(*encoder_, bundle_, settings_, pixels));
    images.push_back({describe_cut(path, image.size, cut, settings_), std::move(features)});
  }
  return images;
}

media::Image ImageInput::resized(media::Image image, media::Backend backend) const {
  const runner::VisionEncoder::Sizes& sizes = encoder_->sizes();
  if (!sizes.picture) return image;
  const media::Size size = {static_cast<int>(sizes.tile[3]), static_cast<int>(sizes.tile[2])};
  return size == image.size ? image : resize(image, size, settings_.filter, backend, *pool_);
}

Result<bool> ImageInput::add(const std::string& path, std::vector<EncodedImage>& images) {
  std::vector<std::string> paths;
  // A picture that was alone is processed otherwise.
  const bool again = settings_.pads_many && images.size() == 1;
  for (size_t i = 0; again && i < images.size(); ++i) paths.push_back(images[i].file.path);
  const size_t others = images.size() - paths.size();
  paths.push_back(path);
  std::vector<EncodedImage> added = FERRY_TRY(encode_among(paths, others));
  images.resize(others);
  std::ranges::move(added, std::back_inserter(images));
  return again;
}

Result<EncodedVideo> ImageInput::encode_video(const std::string& path, std::optional<double> rate) {
  if (!prompts_.takes_videos()) {
    return fail(
        ErrorCode::kUnsupported,
        printable(bundle_.path()) + ": videos are not supported with the processor of this model");
  }
  if (!video_settings_) {
    media::VideoSettings settings = FERRY_TRY(video_settings(bundle_));
    FERRY_RETURN_IF_ERROR(check_videos(bundle_, settings, prompts_));
    video_settings_ = std::move(settings);
  }
  const media::Video video = FERRY_TRY(media::open_video(path, rate));
  return prompt::encode_video(video, *video_settings_, bundle_, *encoder_, *pool_);
}

}  // namespace ferry::prompt
