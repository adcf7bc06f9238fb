#include "proof/prompt_images.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "core/program_interface.h"
#include "core/text.h"
#include "proof/prompt_videos.h"
#include "proof/row_ports.h"
#include "proof/tiled_pictures.h"
#include "runner/token_embedder.h"
#include "runner/vision_encoder.h"

namespace ferry::proof {
namespace {

// The heights and widths of images that are planes, in pixels.
constexpr const char* kImageSizes = "image_sizes";
constexpr int64_t kMostGroups = 1 << 16;  // of frames of a video

int64_t count_of(const std::vector<int64_t>& ids, int64_t id) {
  return std::ranges::count(ids, id);
}

// Returns the token id that stands for a row of image features.
Result<int64_t> placeholder(const ReferencePrompt& prompt, const packer::Manifest& manifest,
                            const RowEncoder& encoder, int64_t rows, const std::string& who) {
  if (encoder.role == kAudioEncoderRole) {
    if (manifest.audio_token_id) return *manifest.audio_token_id;
    return bad_input(who + ": the bundle states no audio_token_id");
  }
  if (prompt.has_videos()) {
    if (manifest.video_token_id) return *manifest.video_token_id;
    return bad_input(who + ": the bundle states no video_token_id: convert again");
  }
  if (manifest.image_token_id) return *manifest.image_token_id;
  std::map<int64_t, int64_t> counts;
  for (const int64_t id : prompt.input_ids) counts[id] += 1;
  std::optional<int64_t> found;
  for (const auto& [id, count] : counts) {
    if (count != rows) continue;
    if (found) {
      return bad_input(
          fmt::format("{}: the bundle states no image_token_id, and tokens {} and {} "
                      "both occur {} times",
                      who, *found, id, rows));
    }
    found = id;
  }
  if (found) return *found;
  return bad_input(fmt::format(
      "{}: no token occurs {} times, which is how many rows its images give", who, rows));
}

std::vector<PromptImages::Run> runs_of(const std::vector<int64_t>& ids, int64_t id) {
  std::vector<PromptImages::Run> runs;
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] != id) continue;
    const auto at = static_cast<int64_t>(i);
    if (!runs.empty() && runs.back().first + runs.back().count == at) {
      runs.back().count += 1;
    } else {
      runs.push_back({at, 1});
    }
  }
  return runs;
}

// Removes tiles of zeros, which pad shorter samples of a batch.
void drop_padding(PromptImages& images) {
  const auto tile =
      static_cast<size_t>(images.pixel_shape[1] * images.pixel_shape[2] * images.pixel_shape[3]);
  std::vector<float> kept;
  for (size_t at = 0; at < images.pixels.size(); at += tile) {
    const auto values = std::span(images.pixels).subspan(at, tile);
    if (std::ranges::all_of(values, [](float v) { return v == 0.0F; })) continue;
    kept.insert(kept.end(), values.begin(), values.end());
  }
  images.pixel_shape[0] = static_cast<int64_t>(kept.size() / tile);
  images.pixels = std::move(kept);
}

// Adds the shape of an image of any shape.
Status add_shape(const packer::Manifest& manifest, ImageShape shape, const std::string& who,
                 PromptImages& images) {
  images.shapes.push_back(shape);
  FERRY_RETURN_IF_ERROR(check_picture(images.picture, shape, who));
  return check_image_shape(*manifest.image_grid, shape, most_blocks(manifest), who);
}

// Reads the rows and columns of patches of images of any shape, and of the groups of frames of
// videos.
Status read_grids(const Reference& reference, const ReferencePrompt& prompt,
                  const packer::Manifest& manifest, PromptImages& images) {
  const std::string name = grids_name(prompt), who = name_of(reference, prompt);
  const Shape shape = reference.shape(prompt, name);
  if (shape.size() != 2 || shape[0] < 1 || shape[1] != 3) {
    return bad_input(
        fmt::format("{}: {} is {}, expected [images, 3]", who, name, to_string(shape)));
  }
  const std::vector<int64_t> numbers = FERRY_TRY(reference.integers(prompt, name, shape));
  for (size_t i = 0; i < numbers.size(); i += 3) {
    const int64_t groups = numbers[i], most = prompt.has_videos() ? kMostGroups : 1;
    if (groups < 1 || groups > most) {
      return fail(
          ErrorCode::kUnsupported,
          fmt::format("{}: {} has an image of {} frames: not supported", who, name, groups));
    }
    if (prompt.has_videos()) images.video_groups.push_back(groups);
    for (int64_t group = 0; group < groups; ++group) {
      FERRY_RETURN_IF_ERROR(add_shape(manifest, {numbers[i + 1], numbers[i + 2]}, who, images));
    }
  }
  return {};
}

// Reads the sizes of images in planes, in pixels.
Status read_image_sizes(const Reference& reference, const ReferencePrompt& prompt,
                        const packer::Manifest& manifest, PromptImages& images) {
  const std::string who = name_of(reference, prompt);
  const Shape shape = reference.shape(prompt, kImageSizes);
  if (shape.size() != 2 || shape[0] < 1 || shape[1] != 2) {
    return bad_input(
        fmt::format("{}: {} is {}, expected [images, 2]", who, kImageSizes, to_string(shape)));
  }
  const int64_t patch = manifest.image_grid->patch_size;
  const std::vector<int64_t> sides = FERRY_TRY(reference.integers(prompt, kImageSizes, shape));
  for (size_t i = 0; i < sides.size(); i += 2) {
    if (sides[i] % patch != 0 || sides[i + 1] % patch != 0) {
      return bad_input(fmt::format("{}: {}: {} x {} pixels are not whole patches of {}", who,
                                   kImageSizes, sides[i], sides[i + 1], patch));
    }
    FERRY_RETURN_IF_ERROR(
        add_shape(manifest, {sides[i] / patch, sides[i + 1] / patch}, who, images));
  }
  return {};
}

// Reads the shapes of images of any shape.
Status read_shapes(const Reference& reference, const ReferencePrompt& prompt,
                   const packer::Manifest& manifest, PromptImages& images) {
  images.grid = manifest.image_grid;
  images.picture = picture_of(manifest);
  images.placed = runner::has_places(manifest);
  const auto read = prompt.has(kImageSizes) ? read_image_sizes : read_grids;
  return read(reference, prompt, manifest, images);
}

int64_t blocks_of(const PromptImages& images) {
  int64_t patches = 0;
  for (const ImageShape& shape : images.shapes) patches += shape.patches();
  return patches / (images.grid->merge_size * images.grid->merge_size);
}

// Cuts images in planes [images,3,H,W] into patches.
Status cut_planes(const Reference& reference, const ReferencePrompt& prompt, PromptImages& images) {
  const ImageGrid& grid = *images.grid;
  const std::string who = name_of(reference, prompt);
  Shape shape = reference.shape(prompt, "pixel_values");
  const bool planes = shape.size() == 4 && shape[0] == std::ssize(images.shapes) && shape[1] == 3;
  const auto fits = [&](const ImageShape& image) {
    return image.rows * grid.patch_size <= shape[2] && image.columns * grid.patch_size <= shape[3];
  };
  if (!planes || grid.temporal_patch_size != 1 || !std::ranges::all_of(images.shapes, fits)) {
    return bad_input(fmt::format("{}: pixel_values are {}, not images of {}", who, to_string(shape),
                                 kImageSizes));
  }
  const std::vector<float> all = FERRY_TRY(reference.floats(prompt, "pixel_values", shape));
  const size_t size = all.size() / images.shapes.size();
  for (size_t i = 0; i < images.shapes.size(); ++i) {
    const std::vector<float> patches = patches_of_planes(
        std::span(all).subspan(i * size, size), shape[2], shape[3], grid, images.shapes[i]);
    images.pixels.insert(images.pixels.end(), patches.begin(), patches.end());
  }
  const int64_t values = 3 * grid.patch_size * grid.patch_size;
  images.pixel_shape = {std::ssize(images.pixels) / values, values};
  return {};
}

Status read_patches(const Reference& reference, const ReferencePrompt& prompt,
                    PromptImages& images) {
  if (prompt.has(kImageSizes)) return cut_planes(reference, prompt, images);
  const ImageGrid& grid = *images.grid;
  const Shape expected = {blocks_of(images) * grid.merge_size * grid.merge_size,
                          3 * grid.patch_size * grid.patch_size * grid.temporal_patch_size};
  const std::string name = patches_name(prompt);
  const Shape& shape = reference.shape(prompt, name);
  if (shape != expected) {
    return bad_input(fmt::format("{}: {} are {}, the vision encoder takes {} for {}",
                                 name_of(reference, prompt), name, to_string(shape),
                                 to_string(expected), grids_name(prompt)));
  }
  images.pixels = FERRY_TRY(reference.floats(prompt, name, shape));
  images.pixel_shape = expected;
  return {};
}

// Gives each run of placeholders the shape of its image, where images have places in three
// dimensions.
Status place_images(PromptImages& images, const std::string& who) {
  if (images.runs.size() != images.shapes.size()) {
    return bad_input(fmt::format("{}: {} runs of placeholders for {} images", who,
                                 images.runs.size(), images.shapes.size()));
  }
  for (size_t i = 0; i < images.runs.size(); ++i) {
    PromptImages::Run& run = images.runs[i];
    run.grid_rows = images.shapes[i].rows / images.grid->merge_size;
    run.grid_columns = images.shapes[i].columns / images.grid->merge_size;
    if (run.count == run.grid_rows * run.grid_columns) continue;
    return bad_input(fmt::format("{}: {} placeholders for an image of {} x {} blocks", who,
                                 run.count, run.grid_rows, run.grid_columns));
  }
  return {};
}

constexpr const char* kLastTowerState = "vision_last_hidden_state";
constexpr const char* kPositions = "image_position_ids";

// Returns the rows and columns of lists of patches whose columns and rows are `positions`, i64
// [tiles,patches,2]. The patches must stand row by row, with -1 for padding behind them.
Result<std::vector<int64_t>> sides_of(std::span<const int64_t> positions, int64_t tiles,
                                      int64_t patches, const std::string& who) {
  std::vector<int64_t> sides;
  for (int64_t tile = 0; tile < tiles; ++tile) {
    const auto size = static_cast<size_t>(2 * patches);
    const auto own = positions.subspan(static_cast<size_t>(tile) * size, size);
    int64_t rows = 0, columns = 0;
    for (size_t i = 0; i < size; i += 2) {
      columns = std::max(columns, std::min(own[i], patches - 1) + 1);
      rows = std::max(rows, std::min(own[i + 1], patches - 1) + 1);
    }
    for (int64_t patch = 0; patch < patches; ++patch) {
      const bool inside = columns > 0 && patch < rows * columns;
      const auto at = static_cast<size_t>(2 * patch);
      if (own[at] == (inside ? patch % columns : -1) &&
          own[at + 1] == (inside ? patch / columns : -1)) {
        continue;
      }
      return bad_input(fmt::format("{}: {}: the patches of image {} do not stand row by row", who,
                                   kPositions, tile));
    }
    sides.insert(sides.end(), {rows, columns});
  }
  return sides;
}

// Returns the rows and columns of each list of patches.
Result<std::vector<int64_t>> read_sides(const Reference& reference, const ReferencePrompt& prompt,
                                        int64_t tiles, int64_t patches) {
  if (prompt.has("spatial_shapes")) {
    return reference.integers(prompt, "spatial_shapes", {tiles, 2});
  }
  if (prompt.has(kPositions)) {
    const auto positions = FERRY_TRY(reference.integers(prompt, kPositions, {tiles, patches, 2}));
    return sides_of(positions, tiles, patches, name_of(reference, prompt));
  }
  return bad_input(fmt::format("{}: has pixel_values and neither spatial_shapes nor {}",
                               name_of(reference, prompt), kPositions));
}

// Reads the shapes of lists of patches, of which `rows` features are made. The mask, if there is
// one, must say the same.
Status read_list_shapes(const Reference& reference, const ReferencePrompt& prompt, int64_t rows,
                        PromptImages& images) {
  const int64_t tiles = images.pixel_shape[0], patches = images.pixel_shape[1];
  const std::vector<int64_t> sides = FERRY_TRY(read_sides(reference, prompt, tiles, patches));
  if (prompt.has(kLastTowerState)) {
    const Shape& shape = reference.shape(prompt, kLastTowerState);
    const bool apart =
        shape.size() == 3 && shape[0] == tiles && (shape[1] == patches || shape[1] == rows);
    images.joins_states = shape.size() == 3 && !apart;
  }
  const runner::VisionEncoder::Sizes sizes{.patches = patches, .rows = rows};
  const auto takes = [&](const ImageShape& shape) {
    return images.picture ? shape == *images.picture && shape.patches() <= patches
                          : sizes.takes(shape);
  };
  std::vector<int64_t> mask;
  for (size_t i = 0; i < sides.size(); i += 2) {
    const int64_t height = sides[i], width = sides[i + 1];
    images.shapes.push_back({height, width});
    if (!takes(images.shapes.back())) {
      return bad_input(
          fmt::format("{}: spatial_shapes: the vision encoder takes no {} x {} patches",
                      name_of(reference, prompt), height, width));
    }
    for (int64_t patch = 0; patch < patches; ++patch) mask.push_back(patch < height * width);
  }
  if (!prompt.has("pixel_attention_mask")) return {};
  if (FERRY_TRY(reference.integers(prompt, "pixel_attention_mask", {tiles, patches})) == mask) {
    return {};
  }
  return bad_input(name_of(reference, prompt) +
                   ": pixel_attention_mask and spatial_shapes differ in the number of patches");
}

Status read_pixels(const Reference& reference, const ReferencePrompt& prompt,
                   const packer::Manifest& manifest, PromptImages& images) {
  if (images.grid) return read_patches(reference, prompt, images);
  if (manifest.image_tiles) return read_tiled(reference, prompt, manifest, images);
  Shape shape = reference.shape(prompt, "pixel_values");
  const bool batch = shape.size() == 5 && shape[0] == 1;
  Shape tiles = batch ? Shape(shape.begin() + 1, shape.end()) : shape;
  Shape expected = tile_shape(manifest);
  if (manifest.patch_list) {
    images.list = manifest.patch_list;
    images.picture = picture_of(manifest);
    expected = {1, tiles.size() == 3 ? tiles[1] : 1, images.list->values()};
  }
  if (!expected.empty() && expected.size() == tiles.size() && tiles[0] > 0) {
    expected[0] = tiles[0];
  }
  if (expected.empty() || tiles != expected) {
    return bad_input(fmt::format("{}: pixel_values are {}, the vision encoder takes tiles of {}",
                                 name_of(reference, prompt), to_string(shape),
                                 to_string(expected)));
  }
  images.pixels = FERRY_TRY(reference.floats(prompt, "pixel_values", shape));
  images.pixel_shape = std::move(tiles);
  if (batch) drop_padding(images);
  if (images.pixel_shape.size() == 4) return {};
  return read_list_shapes(reference, prompt, rows_of_tile(manifest), images);
}

// Reads the windows of frames of sounds, or the frames of one sound.
Status read_windows(const Reference& reference, const ReferencePrompt& prompt,
                    const packer::Manifest& manifest, PromptImages& images) {
  const std::string name(kSoundRows.input);
  const Shape shape = reference.shape(prompt, name);
  Shape expected = tile_shape(manifest, kSoundRows);
  if (expected.size() == 3 && shape.size() == 3 && manifest.audio_row_frames) {
    images.row_frames = *manifest.audio_row_frames;
    images.block_rows = manifest.audio_block_rows.value_or(1);
    images.padded_rows = manifest.audio_rows.value_or(0);
    if (shape[1] > 0) expected[1] = std::min(expected[1], shape[1]);
  } else if (!expected.empty() && !shape.empty() && shape[0] > 0) {
    expected[0] = shape[0];
  }
  if (expected.empty() || shape != expected) {
    return bad_input(fmt::format(
        "{}: {} are {}, the audio encoder takes {} {}", name_of(reference, prompt), name,
        to_string(shape), images.row_frames > 0 ? "sounds of" : "windows of", to_string(expected)));
  }
  images.pixels = FERRY_TRY(reference.floats(prompt, name, shape));
  images.pixel_shape = shape;
  return {};
}

Status read_features(const Reference& reference, const ReferencePrompt& prompt,
                     const packer::Manifest& manifest, PromptImages& images) {
  const std::string name(images.encoder->output);
  const Shape& shape = reference.shape(prompt, name);
  if (shape.empty() || shape.back() != manifest.hidden_size) {
    return bad_input(fmt::format("{}: {} are {}, the text decoder takes rows of {}",
                                 name_of(reference, prompt), name, to_string(shape),
                                 manifest.hidden_size));
  }
  images.features = FERRY_TRY(reference.floats(prompt, name, shape));
  return {};
}

// The types of some processors, which tell their models where images are; without a placeholder,
// that all tokens attend to each other.
Status check_token_types(const Reference& reference, const ReferencePrompt& prompt,
                         const std::string& name, std::optional<int64_t> placeholder) {
  if (!prompt.has(name)) return {};
  const int64_t type = prompt.has_videos() ? 2 : 1;  // of placeholders
  const std::vector<int64_t> types =
      FERRY_TRY(reference.integers(prompt, name, {1, std::ssize(prompt.input_ids)}));
  for (size_t i = 0; i < types.size(); ++i) {
    if (types[i] == (prompt.input_ids[i] == placeholder ? type : 0)) continue;
    if (!placeholder) {
      return bad_input(fmt::format("{}: {}: {} for a token of a prompt, expected 0",
                                   name_of(reference, prompt), name, types[i]));
    }
    return bad_input(
        fmt::format("{}: {}: {} for token {}, where token {} alone stands "
                    "for an image",
                    name_of(reference, prompt), name, types[i], prompt.input_ids[i], *placeholder));
  }
  return {};
}

}  // namespace

Shape join_tower(const PromptImages& images, std::string_view name, Shape shape,
                 std::vector<float>& values) {
  const int64_t width = shape.back();
  if (images.has_lists() && images.joins_states && name == kLastTowerState) {
    const auto size = static_cast<size_t>(shape[1] * width);
    std::vector<float> kept;
    for (size_t tile = 0; tile < values.size() / size; ++tile) {
      const auto rows = static_cast<size_t>(images.rows_of(tile, shape[1]) * width);
      const auto own = std::span(values).subspan(tile * size, rows);
      kept.insert(kept.end(), own.begin(), own.end());
    }
    values = std::move(kept);
  } else if (!images.grid) {
    shape[0] = images.pixel_shape[0];
    return shape;
  }
  return {1, static_cast<int64_t>(values.size()) / width, width};
}

int64_t PromptImages::rows_of_pictures() const {
  int64_t rows = 0;
  for (size_t i = 0; i < tile_counts.size(); ++i) rows += tiled->rows_of(shapes[i], tile_counts[i]);
  return rows;
}

int64_t PromptImages::row_count() const {
  int64_t total = 0;
  for (const Run& run : runs) total += run.count;
  return total;
}

std::vector<runner::EmbeddingRows> PromptImages::rows_of(std::span<const float> values) const {
  std::vector<runner::EmbeddingRows> views;
  const int64_t total = row_count();
  if (total == 0) return views;
  const size_t stride = values.size() / static_cast<size_t>(total);
  size_t at = 0;
  for (const Run& run : runs) {
    const size_t size = static_cast<size_t>(run.count) * stride;
    views.push_back({run.first, values.subspan(at, size), run.grid_rows, run.grid_columns,
                     two_way_tokens, are_sounds(), run.grid_frames, run.frame_step,
                     run.grid_frames > 1 ? tokens : 0});
    at += size;
  }
  return views;
}

Result<PromptImages> images_of(const Reference& reference, const ReferencePrompt& prompt,
                               const packer::Manifest& manifest) {
  PromptImages images;
  images.width = manifest.hidden_size;
  images.tokens = std::ssize(prompt.input_ids);
  const std::string who = name_of(reference, prompt);
  if (const RowEncoder* rows = rows_in(prompt, manifest)) images.encoder = rows;
  FERRY_RETURN_IF_ERROR(check_videos_of(prompt, manifest, who));
  const RowEncoder& encoder = *images.encoder;
  const bool hears = encoder.role == kAudioEncoderRole;
  const std::string input = prompt.has_videos() ? patches_name(prompt) : std::string(encoder.input);
  const std::string output(encoder.output);
  if (!hears && packer::row_encoder(manifest, kAudioEncoderRole) != nullptr &&
      prompt.needs_sound()) {
    return fail(ErrorCode::kUnsupported, who + " has images and sounds: not supported");
  }
  if (manifest.image_grid && !hears) {
    FERRY_RETURN_IF_ERROR(read_shapes(reference, prompt, manifest, images));
  }
  if (prompt.has(input)) {
    FERRY_RETURN_IF_ERROR(hears ? read_windows(reference, prompt, manifest, images)
                                : read_pixels(reference, prompt, manifest, images));
  }
  if (prompt.has(output)) {
    FERRY_RETURN_IF_ERROR(read_features(reference, prompt, manifest, images));
  }
  int64_t encoded = images.grid ? blocks_of(images) : images.rows_of_pictures();
  const bool apart = !images.grid && !images.tiled && !images.pixel_shape.empty();
  const int64_t tiles = apart ? images.pixel_shape[0] : 0;
  for (int64_t tile = 0; tile < tiles; ++tile) {
    encoded += images.rows_of(static_cast<size_t>(tile), rows_of_tile(manifest, encoder));
  }
  const int64_t given = std::ssize(images.features) / manifest.hidden_size;
  const int64_t rows = prompt.has(output) ? given : encoded;
  const char* what = hears ? "sounds" : prompt.has_videos() ? "videos" : "images";
  if (rows < 1) return bad_input(fmt::format("{}: its {} give no rows", who, what));
  if (prompt.has(input) && encoded != rows) {
    return bad_input(
        fmt::format("{}: {} give {} rows, {} are {}", who, input, encoded, output, rows));
  }
  const int64_t id = FERRY_TRY(placeholder(prompt, manifest, encoder, rows, who));
  if (const int64_t count = count_of(prompt.input_ids, id); count != rows) {
    return bad_input(fmt::format("{}: {} placeholders (token {}), but its {} give {} rows", who,
                                 count, id, what, rows));
  }
  for (const char* types : {"token_type_ids", "mm_token_type_ids"}) {
    FERRY_RETURN_IF_ERROR(check_token_types(
        reference, prompt, types, manifest.two_way_prompts ? std::nullopt : std::optional(id)));
  }
  images.runs = runs_of(prompt.input_ids, id);
  if (manifest.two_way_prompts) images.two_way_tokens = std::ssize(prompt.input_ids);
  const bool whole = prompt.has_videos() && !has_groups_apart(images);
  if (images.placed && whole) {
    FERRY_RETURN_IF_ERROR(place_videos(reference, prompt, manifest, images));
  } else if (images.placed) {
    FERRY_RETURN_IF_ERROR(place_images(images, who));
  }
  // image_features lack the rows that the vision encoder gives the first layers of the decoder.
  if (runner::row_width(manifest) != manifest.hidden_size) images.features.clear();
  return images;
}

}  // namespace ferry::proof
