#include "proof/row_ports.h"

#include <algorithm>
#include <string_view>
#include <vector>

namespace ferry::proof {
namespace {

using Ports = std::vector<packer::ManifestPort> packer::ManifestMethod::*;

// Returns an input or output of an encoder; nullptr if none of its programs has it.
const packer::ManifestPort* find_port(const packer::Manifest& manifest, Ports ports,
                                      std::string_view name,
                                      std::string_view role = kVisionEncoderRole) {
  const packer::ManifestComponent* vision = manifest.find(role);
  if (vision == nullptr) return nullptr;
  for (const packer::ManifestProgram& program : vision->programs) {
    const packer::ManifestMethod* method = program.find(kForwardMethod);
    if (method == nullptr) continue;
    const auto found = std::ranges::find(method->*ports, name, &packer::ManifestPort::name);
    if (found != (method->*ports).end()) return &*found;
  }
  return nullptr;
}

}  // namespace

std::set<std::string> row_inputs() {
  return {"pixel_values",       "pixel_attention_mask", "pixel_values_videos",
          "video_grid_thw",     "video_position_ids",   "num_frames_per_video",
          "second_per_grid_ts", "token_type_ids",       "mm_token_type_ids",
          "image_grid_thw",     "image_sizes",          "batch_num_images",
          "spatial_shapes",     "image_position_ids",   std::string(kInputFeaturesPort),
          "input_features_mask"};
}

int64_t most_blocks(const packer::Manifest& manifest) {
  const packer::ManifestPort* port =
      find_port(manifest, &packer::ManifestMethod::inputs, kPixelValuesPort);
  if (!manifest.image_grid || port == nullptr) return 0;
  if (picture_of(manifest)) return rows_of_tile(manifest);
  return port->shape.size() == 3 ? port->shape[1] : 0;
}

std::optional<ImageShape> picture_of(const packer::Manifest& manifest) {
  const Shape tile = tile_shape(manifest);
  if (tile.size() != 4 || (!manifest.image_grid && !manifest.patch_list)) return std::nullopt;
  const int64_t patch =
      manifest.image_grid ? manifest.image_grid->patch_size : manifest.patch_list->patch_size;
  return ImageShape{tile[2] / patch, tile[3] / patch};
}

std::vector<const RowEncoder*> encoders_of(const ReferencePrompt& prompt,
                                           const packer::Manifest& manifest) {
  const auto has = [&](const RowEncoder& rows) {
    const bool video = rows.role == kVisionEncoderRole && prompt.has_videos();
    return video || prompt.has(std::string(rows.input)) || prompt.has(std::string(rows.output));
  };
  std::vector<const RowEncoder*> found;
  for (const RowEncoder* rows : packer::row_encoders(manifest)) {
    if (has(*rows)) found.push_back(rows);
  }
  return found;
}

bool has_rows(const ReferencePrompt& prompt, const packer::Manifest& manifest) {
  return prompt.needs_images() || !encoders_of(prompt, manifest).empty();
}

Shape tile_shape(const packer::Manifest& manifest, const RowEncoder& encoder) {
  const packer::ManifestPort* port =
      find_port(manifest, &packer::ManifestMethod::inputs, encoder.input, encoder.role);
  const bool usable = port != nullptr && (port->shape.size() == 4 || port->shape.size() == 3) &&
                      std::ranges::min(port->shape) >= 1;
  return usable ? port->shape : Shape();
}

int64_t rows_of_tile(const packer::Manifest& manifest, const RowEncoder& encoder) {
  const packer::ManifestPort* port =
      find_port(manifest, &packer::ManifestMethod::outputs, encoder.output, encoder.role);
  return port == nullptr || port->shape.size() != 3 ? 0 : port->shape[1];
}

}  // namespace ferry::proof
