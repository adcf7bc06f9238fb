#include "proof/prompt_images.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "core/image_grid.h"
#include "core/program_interface.h"
#include "core/text.h"
#include "proof/listed_pictures.h"
#include "proof/prompt_sounds.h"
#include "proof/prompt_videos.h"
#include "proof/row_ports.h"
#include "proof/shaped_pictures.h"
#include "proof/tiled_pictures.h"
#include "runner/token_embedder.h"

namespace ferry::proof {
namespace {

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
    if (prompt.has_stills() && !manifest.image_token_id) {
      return bad_input(who + ": the bundle states no image_token_id");
    }
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

// Gives each of the first `count` runs of placeholders the shape of its image, where images have
// places in three dimensions.
Status place_images(PromptImages& images, size_t count, const std::string& who) {
  if (images.runs.size() < count) {
    return bad_input(
        fmt::format("{}: {} runs of placeholders for {} images", who, images.runs.size(), count));
  }
  for (size_t i = 0; i < count; ++i) {
    PromptImages::Run& run = images.runs[i];
    run.grid_rows = images.shapes[i].rows / images.grid->merge_size;
    run.grid_columns = images.shapes[i].columns / images.grid->merge_size;
    if (run.count == run.grid_rows * run.grid_columns) continue;
    return bad_input(fmt::format("{}: {} placeholders for an image of {} x {} blocks", who,
                                 run.count, run.grid_rows, run.grid_columns));
  }
  return {};
}

// Reads tiles that are pictures or lists of patches: of images, or of the frames of videos.
Status read_tiles(const Reference& reference, const ReferencePrompt& prompt,
                  const packer::Manifest& manifest, bool films, PromptImages& images) {
  if (manifest.image_tiles) {
    return films ? read_tiled_videos(reference, prompt, manifest, images)
                 : read_tiled(reference, prompt, manifest, images);
  }
  const std::string name = patches_name(films);
  Shape shape = reference.shape(prompt, name);
  const bool batch = shape.size() == 5 && shape[0] == 1;
  Shape tiles = batch ? Shape(shape.begin() + 1, shape.end()) : shape;
  Shape expected = tile_shape(manifest);
  if (manifest.patch_list) {
    images.list = manifest.patch_list;
    images.picture = picture_of(manifest);
    expected = {1, tiles.size() == 3 ? tiles[1] : 1, images.list->values()};
  }
  const int64_t longest = expected.size() == 3 ? expected[1] : 0;
  if (!expected.empty() && expected.size() == tiles.size() && tiles[0] > 0) {
    expected[0] = tiles[0];
    // The lists of images and frames may be shorter than those that the program takes.
    if (longest > 0) expected[1] = std::clamp<int64_t>(tiles[1], 1, longest);
  }
  if (expected.empty() || tiles != expected) {
    return bad_input(fmt::format("{}: {} are {}, the vision encoder takes tiles of {}",
                                 name_of(reference, prompt), name, to_string(shape),
                                 to_string(expected)));
  }
  images.pixels = FERRY_TRY(reference.floats(prompt, name, shape));
  images.pixel_shape = std::move(tiles);
  if (batch) drop_padding(images);
  if (images.pixel_shape.size() == 4) return {};
  FERRY_RETURN_IF_ERROR(
      read_list_shapes(reference, prompt, longest, rows_of_tile(manifest), films, images));
  if (films) FERRY_RETURN_IF_ERROR(read_listed_videos(reference, prompt, images));
  images.list_lengths.assign(images.shapes.size(), images.pixel_shape[1]);
  fit_list_length(images.pixel_shape, images.pixels, longest);
  return {};
}

// Reads images, and the videos beside them.
Status read_stills_and_videos(const Reference& reference, const ReferencePrompt& prompt,
                              const packer::Manifest& manifest, PromptImages& images) {
  PromptImages films = images;
  FERRY_RETURN_IF_ERROR(read_tiles(reference, prompt, manifest, /*films=*/false, images));
  FERRY_RETURN_IF_ERROR(read_tiles(reference, prompt, manifest, /*films=*/true, films));
  images.stills = images.shapes.size();
  images.joins_states = images.has_lists() && prompt.has(kLastTowerState);
  images.video_groups = std::move(films.video_groups);
  images.pixel_shape[0] += films.pixel_shape[0];
  const auto append = [](auto& to, const auto& from) {
    to.insert(to.end(), from.begin(), from.end());
  };
  append(images.pixels, films.pixels);
  append(images.shapes, films.shapes);
  append(images.list_lengths, films.list_lengths);
  return {};
}

Status read_pixels(const Reference& reference, const ReferencePrompt& prompt,
                   const packer::Manifest& manifest, PromptImages& images) {
  if (images.grid) return read_patches(reference, prompt, images);
  if (prompt.has_videos() && prompt.has_stills()) {
    return read_stills_and_videos(reference, prompt, manifest, images);
  }
  return read_tiles(reference, prompt, manifest, prompt.has_videos(), images);
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

// The types of tokens by which some processors tell their models where images are. Where all tokens
// attend to each other, there are none.
std::map<int64_t, int64_t> known_types(const packer::Manifest& manifest, int64_t placeholder) {
  std::map<int64_t, int64_t> types;
  if (manifest.two_way_prompts) return types;
  if (manifest.video_token_id) types[*manifest.video_token_id] = 2;
  if (manifest.audio_token_id) types[*manifest.audio_token_id] = 3;
  if (manifest.image_token_id) types[*manifest.image_token_id] = 1;
  types.try_emplace(placeholder, 1);
  return types;
}

Status check_token_types(const Reference& reference, const ReferencePrompt& prompt,
                         const std::string& name, const std::map<int64_t, int64_t>& known) {
  if (!prompt.has(name)) return {};
  const std::vector<int64_t> types =
      FERRY_TRY(reference.integers(prompt, name, {1, std::ssize(prompt.input_ids)}));
  for (size_t i = 0; i < types.size(); ++i) {
    const auto found = known.find(prompt.input_ids[i]);
    const int64_t type = found == known.end() ? 0 : found->second;
    if (types[i] == type) continue;
    return bad_input(fmt::format("{}: {}: {} for token {}, expected {}", name_of(reference, prompt),
                                 name, types[i], prompt.input_ids[i], type));
  }
  return {};
}

}  // namespace

Shape join_tower(const PromptImages& images, std::string_view name, Shape shape,
                 std::vector<float>& values) {
  if (!images.shown_frames.empty()) return join_sounds(images, name, shape, values);
  const int64_t width = shape.back();
  const bool joins = images.has_lists() && images.joins_states && name == kLastTowerState;
  const bool fits = !images.list_lengths.empty() && shape[1] == images.pixel_shape[1];
  if (joins || fits) {
    const auto size = static_cast<size_t>(shape[1] * width);
    std::vector<float> kept;
    for (size_t tile = 0; tile < values.size() / size; ++tile) {
      const int64_t rows = joins ? images.rows_of(tile, shape[1]) : images.list_lengths[tile];
      const auto own = std::span(values).subspan(tile * size, static_cast<size_t>(rows * width));
      kept.insert(kept.end(), own.begin(), own.end());
    }
    values = std::move(kept);
    if (!joins) shape[1] = images.list_lengths.front();
  }
  if (!joins && !images.grid && images.stills == 0) {
    shape[0] = images.pixel_shape[0];
    return shape;
  }
  return {1, static_cast<int64_t>(values.size()) / width, width};
}

int64_t PromptImages::rows_of_pictures() const {
  int64_t rows = 0;
  for (const int64_t frames : video_groups) {
    if (tiled) rows += frames * tiled->rows_of_frame() + 1;
  }
  return rows + rows_of_stills();
}

int64_t PromptImages::rows_of_stills() const {
  int64_t rows = 0;
  for (size_t i = 0; i < tile_counts.size(); ++i) rows += tiled->rows_of(shapes[i], tile_counts[i]);
  return rows;
}

int64_t PromptImages::still_tiles() const {
  int64_t patches = 0;
  for (const ImageShape& still : std::span(shapes).first(stills)) patches += still.patches();
  if (grid) return patches;
  return tiled ? std::accumulate(tile_counts.begin(), tile_counts.end(), int64_t{0})
               : static_cast<int64_t>(stills);
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

std::vector<runner::EmbeddingRows> PromptImages::rows() const {
  std::vector<runner::EmbeddingRows> views;
  for (const PromptImages* kind : kinds()) {
    const std::vector<runner::EmbeddingRows> own = kind->rows_of(kind->features);
    views.insert(views.end(), own.begin(), own.end());
  }
  std::ranges::sort(views, {}, &runner::EmbeddingRows::first);
  return views;
}

std::vector<PromptImages*> PromptImages::kinds() {
  std::vector<PromptImages*> all = {this};
  for (PromptImages& other : others) all.push_back(&other);
  return all;
}
std::vector<const PromptImages*> PromptImages::kinds() const {
  std::vector<const PromptImages*> all = {this};
  for (const PromptImages& other : others) all.push_back(&other);
  return all;
}

namespace {

// Gives the runs of images and videos their places.
Status place_runs(const Reference& reference, const ReferencePrompt& prompt,
                  const packer::Manifest& manifest, PromptImages& images) {
  const std::string who = name_of(reference, prompt);
  const bool whole = prompt.has_videos() && !has_groups_apart(images);
  if (whole) {
    FERRY_RETURN_IF_ERROR(place_images(images, images.stills, who));
    return place_videos(reference, prompt, manifest, images);
  }
  if (images.runs.size() == images.shapes.size()) {
    return place_images(images, images.shapes.size(), who);
  }
  return bad_input(fmt::format("{}: {} runs of placeholders for {} images", who, images.runs.size(),
                               images.shapes.size()));
}

// Returns what an encoder makes rows of.
Result<PromptImages> kind_of(const Reference& reference, const ReferencePrompt& prompt,
                             const packer::Manifest& manifest, const RowEncoder& encoder) {
  PromptImages images;
  images.encoder = &encoder;
  images.width = manifest.hidden_size;
  images.tokens = std::ssize(prompt.input_ids);
  const std::string who = name_of(reference, prompt);
  const bool hears = encoder.role == kAudioEncoderRole;
  const bool films = !hears && prompt.has_videos();
  const std::string input = films ? patches_name(films) : std::string(encoder.input);
  const std::string output(encoder.output);
  if (manifest.image_grid && !hears) {
    FERRY_RETURN_IF_ERROR(read_shapes(reference, prompt, manifest, images));
  }
  if (prompt.has(input)) {
    FERRY_RETURN_IF_ERROR(hears ? read_sounds(reference, prompt, manifest, images)
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
  const char* what = hears ? "sounds" : films ? "videos" : "images";
  if (rows < 1) return bad_input(fmt::format("{}: its {} give no rows", who, what));
  if (prompt.has(input) && encoded != rows) {
    return bad_input(
        fmt::format("{}: {} give {} rows, {} are {}", who, input, encoded, output, rows));
  }
  const int64_t id = FERRY_TRY(placeholder(prompt, manifest, encoder, rows, who));
  int64_t count = count_of(prompt.input_ids, id);
  if (images.stills > 0) count += count_of(prompt.input_ids, *manifest.image_token_id);
  if (count != rows) {
    return bad_input(fmt::format("{}: {} placeholders (token {}), but its {} give {} rows", who,
                                 count, id, what, rows));
  }
  for (const char* types : {"token_type_ids", "mm_token_type_ids"}) {
    FERRY_RETURN_IF_ERROR(check_token_types(reference, prompt, types, known_types(manifest, id)));
  }
  images.runs = runs_of(prompt.input_ids, id);
  if (images.stills > 0) {
    const auto stills = runs_of(prompt.input_ids, *manifest.image_token_id);
    images.runs.insert(images.runs.begin(), stills.begin(), stills.end());
  }
  if (manifest.two_way_prompts) images.two_way_tokens = std::ssize(prompt.input_ids);
  FERRY_RETURN_IF_ERROR(images.placed ? place_runs(reference, prompt, manifest, images) : Status());
  // image_features lack the rows that the vision encoder gives the first layers of the decoder.
  if (runner::row_width(manifest) != manifest.hidden_size) images.features.clear();
  return images;
}

}  // namespace

Result<PromptImages> images_of(const Reference& reference, const ReferencePrompt& prompt,
                               const packer::Manifest& manifest) {
  FERRY_RETURN_IF_ERROR(check_videos_of(prompt, manifest, name_of(reference, prompt)));
  std::vector<const RowEncoder*> encoders = encoders_of(prompt, manifest);
  if (encoders.empty()) encoders = {&kPictureRows};
  PromptImages images = FERRY_TRY(kind_of(reference, prompt, manifest, *encoders.front()));
  for (size_t i = 1; i < encoders.size(); ++i) {
    images.others.push_back(FERRY_TRY(kind_of(reference, prompt, manifest, *encoders[i])));
  }
  return images;
}

}  // namespace ferry::proof
