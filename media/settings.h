// Settings of image processing that a checkpoint's processor files state.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "core/result.h"
#include "media/image.h"
#include "media/resample.h"

namespace ferry::media {

enum class ProcessorKind {
  kIdefics3,  // SmolVLM: longest edge, whole tiles, the whole picture as the last tile
  kGotOcr2,   // InternVL: the best grid of tiles, a thumbnail as the last one
  kGemma3,    // the whole picture as one tile; with pan and scan, parts of a long one behind it
  kQwen2Vl,   // patches of the whole picture, which keeps its shape
};

inline constexpr int kMaxTile = 2048;         // side, in pixels
inline constexpr int kMaxLongestEdge = 4096;  // the reference limits the longest edge to this
inline constexpr int kMaxPatches = 256;
inline constexpr int kMostPixels = 1 << 26;  // of a picture of any shape

// The defaults are those of the classes; settings_from() sets the sizes.
struct Settings {
  ProcessorKind kind = ProcessorKind::kIdefics3;
  Filter filter = Filter::kLanczos;
  int tile = 0;  // side, in pixels
  std::array<double, 3> mean{}, std{};
  double rescale = 1.0 / 255;

  // These are for Idefics3. A fixed size replaces the longest edge.
  int longest_edge = 4 * 364;
  Size fixed{};
  bool split = true;

  // These are for GotOcr2.
  bool crop = true;
  int least_patches = 1, most_patches = 12;

  bool pan_and_scan = false;  // for Gemma3; no file asks for it

  // These are for Qwen2Vl. Sides are multiples of patch * merge, and pixels from least to most.
  int patch = 14, frames = 2, merge = 2;
  int least_pixels = 56 * 56, most_pixels = 28 * 28 * 1280;

  bool has_mask() const { return kind == ProcessorKind::kIdefics3; }
  bool has_patches() const { return kind == ProcessorKind::kQwen2Vl; }
};

// Asks for pan and scan. kUsage for a processor that does not have it; `where` begins the message.
Status set_pan_and_scan(Settings& settings, const std::string& where);

// Returns the settings of the checkpoint in `directory`: the member image_processor of
// processor_config.json if there is one, otherwise preprocessor_config.json. kIo if neither exists;
// kUnsupported, with the name, for unknown classes, fields and values.
Result<Settings> load_settings(const std::string& directory);
// Returns the settings that the two texts state. An empty text stands for an absent file.
// `directory` begins the messages.
Result<Settings> settings_from(std::string_view preprocessor, std::string_view processor,
                               const std::string& directory);

}  // namespace ferry::media
