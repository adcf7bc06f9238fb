// Settings: what a checkpoint's own processor files say about pictures.
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
};

inline constexpr int kMaxTile = 2048;         // side, in pixels
inline constexpr int kMaxLongestEdge = 4096;  // the reference cuts what is longer
inline constexpr int kMaxPatches = 256;

// The defaults are those of the classes; sizes are set by settings_from.
struct Settings {
  ProcessorKind kind = ProcessorKind::kIdefics3;
  Filter filter = Filter::kLanczos;
  int tile = 0;  // side
  std::array<double, 3> mean{}, std{};
  double rescale = 1.0 / 255;

  // Idefics3. A fixed size takes the place of the longest edge.
  int longest_edge = 4 * 364;
  Size fixed{};
  bool split = true;

  // GotOcr2.
  bool crop = true;
  int least_patches = 1, most_patches = 12;

  bool has_mask() const { return kind == ProcessorKind::kIdefics3; }
};

// The settings of the checkpoint in `directory`: the member image_processor of
// processor_config.json if there is one, otherwise preprocessor_config.json. kIo when it has
// neither; kUnsupported, by name, for classes, fields and values that are not known.
Result<Settings> load_settings(const std::string& directory);
// The settings in the two texts; an empty one is an absent file. `directory` begins the messages.
Result<Settings> settings_from(std::string_view preprocessor, std::string_view processor,
                               const std::string& directory);

}  // namespace ferry::media
