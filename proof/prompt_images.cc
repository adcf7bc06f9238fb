#include "proof/prompt_images.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "core/program_interface.h"
#include "core/text.h"

namespace ferry::proof {
namespace {

using Ports = std::vector<packer::ManifestPort> packer::ManifestMethod::*;

// Returns an input or output of the vision encoder; nullptr if none of its programs has it.
const packer::ManifestPort* find_port(const packer::Manifest& manifest, Ports ports,
                                      std::string_view name) {
  const packer::ManifestComponent* vision = manifest.find(kVisionEncoderRole);
  if (vision == nullptr) return nullptr;
  for (const packer::ManifestProgram& program : vision->programs) {
    const packer::ManifestMethod* method = program.find(kForwardMethod);
    if (method == nullptr) continue;
    const auto found = std::ranges::find(method->*ports, name, &packer::ManifestPort::name);
    if (found != (method->*ports).end()) return &*found;
  }
  return nullptr;
}

int64_t count_of(const std::vector<int64_t>& ids, int64_t id) {
  return std::ranges::count(ids, id);
}

// Returns the token id that stands for a row of image features.
Result<int64_t> placeholder(const ReferencePrompt& prompt, const packer::Manifest& manifest,
                            int64_t rows, const std::string& who) {
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

Status read_pixels(const Reference& reference, const ReferencePrompt& prompt,
                   const packer::Manifest& manifest, PromptImages& images) {
  Shape shape = reference.shape(prompt, "pixel_values");
  const bool batch = shape.size() == 5 && shape[0] == 1;
  Shape tiles = batch ? Shape(shape.begin() + 1, shape.end()) : shape;
  Shape expected = tile_shape(manifest);
  if (expected.size() == 4 && tiles.size() == 4 && tiles[0] > 0) {
    expected[0] = tiles[0];
  }
  if (tiles.size() != 4 || tiles != expected) {
    return bad_input(fmt::format("{}: pixel_values are {}, the vision encoder takes tiles of {}",
                                 name_of(reference, prompt), to_string(shape),
                                 to_string(expected)));
  }
  images.pixels = FERRY_TRY(reference.floats(prompt, "pixel_values", shape));
  images.pixel_shape = std::move(tiles);
  if (batch) drop_padding(images);
  return {};
}

Status read_features(const Reference& reference, const ReferencePrompt& prompt,
                     const packer::Manifest& manifest, PromptImages& images) {
  const Shape& shape = reference.shape(prompt, "image_features");
  if (shape.empty() || shape.back() != manifest.hidden_size) {
    return bad_input(fmt::format("{}: image_features are {}, the text decoder takes rows of {}",
                                 name_of(reference, prompt), to_string(shape),
                                 manifest.hidden_size));
  }
  images.features = FERRY_TRY(reference.floats(prompt, "image_features", shape));
  return {};
}

// The types of Gemma 3's processor, which tell its model where images are.
Status check_token_types(const Reference& reference, const ReferencePrompt& prompt,
                         int64_t placeholder) {
  if (!prompt.has("token_type_ids")) return {};
  const std::vector<int64_t> types =
      FERRY_TRY(reference.integers(prompt, "token_type_ids", {1, std::ssize(prompt.input_ids)}));
  for (size_t i = 0; i < types.size(); ++i) {
    if (types[i] == (prompt.input_ids[i] == placeholder ? 1 : 0)) continue;
    return bad_input(
        fmt::format("{}: token_type_ids: {} for token {}, where token {} alone stands "
                    "for an image",
                    name_of(reference, prompt), types[i], prompt.input_ids[i], placeholder));
  }
  return {};
}

}  // namespace

std::vector<runner::EmbeddingRows> PromptImages::rows() const {
  std::vector<runner::EmbeddingRows> views;
  int64_t total = 0;
  for (const Run& run : runs) total += run.count;
  if (total == 0) return views;
  const size_t width = features.size() / static_cast<size_t>(total);
  size_t at = 0;
  for (const Run& run : runs) {
    const size_t values = static_cast<size_t>(run.count) * width;
    views.push_back({run.first, std::span(features).subspan(at, values)});
    at += values;
  }
  return views;
}

Shape tile_shape(const packer::Manifest& manifest) {
  const packer::ManifestPort* port =
      find_port(manifest, &packer::ManifestMethod::inputs, kPixelValuesPort);
  const bool usable =
      port != nullptr && port->shape.size() == 4 && std::ranges::min(port->shape) >= 1;
  return usable ? port->shape : Shape();
}

int64_t rows_of_tile(const packer::Manifest& manifest) {
  const packer::ManifestPort* port =
      find_port(manifest, &packer::ManifestMethod::outputs, kImageFeaturesPort);
  return port == nullptr || port->shape.size() != 3 ? 0 : port->shape[1];
}

Result<PromptImages> images_of(const Reference& reference, const ReferencePrompt& prompt,
                               const packer::Manifest& manifest) {
  PromptImages images;
  if (prompt.has("pixel_values")) {
    FERRY_RETURN_IF_ERROR(read_pixels(reference, prompt, manifest, images));
  }
  if (prompt.has("image_features")) {
    FERRY_RETURN_IF_ERROR(read_features(reference, prompt, manifest, images));
  }
  const std::string who = name_of(reference, prompt);
  const int64_t encoded =
      images.pixel_shape.empty() ? 0 : images.pixel_shape[0] * rows_of_tile(manifest);
  const int64_t given = std::ssize(images.features) / manifest.hidden_size;
  const int64_t rows = prompt.has("image_features") ? given : encoded;
  if (rows < 1) return bad_input(fmt::format("{}: its images give no rows", who));
  if (prompt.has("pixel_values") && encoded != rows) {
    return bad_input(
        fmt::format("{}: pixel_values give {} rows, image_features are {}", who, encoded, rows));
  }
  const int64_t id = FERRY_TRY(placeholder(prompt, manifest, rows, who));
  if (const int64_t count = count_of(prompt.input_ids, id); count != rows) {
    return bad_input(fmt::format("{}: {} placeholders (token {}), but its images give {} rows", who,
                                 count, id, rows));
  }
  FERRY_RETURN_IF_ERROR(check_token_types(reference, prompt, id));
  images.runs = runs_of(prompt.input_ids, id);
  return images;
}

}  // namespace ferry::proof
