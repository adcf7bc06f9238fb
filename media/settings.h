// Settings of image processing that a checkpoint's processor files state.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "core/tiled_picture.h"
#include "media/image.h"
#include "media/resample.h"

namespace ferry::media {

enum class ProcessorKind {
  kIdefics3,   // SmolVLM: longest edge, whole tiles, the whole picture as the last tile
  kGotOcr2,    // InternVL: the best grid of tiles, a thumbnail as the last one
  kGemma3,     // the whole picture as one tile; with pan and scan, parts of a long one behind it
  kQwen2Vl,    // patches of the whole picture, which keeps its shape
  kClip,       // the whole picture as one tile, of its own shape until it is cropped (LLaVA)
  kLfm2Vl,     // a picture of its own shape, or a grid of tiles and a thumbnail of its own shape
  kPixtral,    // the whole picture, which keeps its shape, in whole tokens
  kGemma4,     // a picture of its own shape, as large as most_tokens allow
  kPinpoints,  // the whole picture, and the tiles of one of several resolutions (LLaVA-NeXT)
};

inline constexpr int kMaxTile = 2048;         // side, in pixels
inline constexpr int kMaxLongestEdge = 4096;  // the reference limits the longest edge to this
inline constexpr int kMaxPatches = 256;
inline constexpr int kMostPixels = 1 << 26;          // of a picture of any shape
inline constexpr int kMaxPatchSide = 256;            // in pixels
inline constexpr int kMaxPictureSide = 8192;         // of a picture that keeps its shape
inline constexpr int64_t kMaxTilePatches = 1 << 16;  // in one list of patches
inline constexpr int64_t kMaxTilePixels = 1 << 24;   // of all of them

// The defaults are those of the classes; settings_from() sets the sizes.
struct Settings {
  ProcessorKind kind = ProcessorKind::kIdefics3;
  Filter filter = Filter::kLanczos;
  int tile = 0;  // side, in pixels
  std::array<double, 3> mean{}, std{};
  bool normalize = true;  // by mean and std
  double rescale = 1.0 / 255;
  bool converts_rgb = true;  // do_convert_rgb

  // These are for Idefics3. A fixed size replaces the longest edge. For Pixtral it is the largest
  // that a picture has before it is filled up to whole tokens.
  int longest_edge = 4 * 364;
  Size fixed{};
  bool split = true;

  // These are for GotOcr2.
  bool crop = true;
  int least_patches = 1, most_patches = 12;

  int tile_tokens = 0;  // the tokens that the file states for a tile (PaliGemma); 0: it does not

  bool pan_and_scan = false;  // for Gemma3; no file asks for it

  // These are for Gemma4, Lfm2Vl, Qwen2Vl and Pixtral. A token is a square of `merge` x `merge`
  // patches.
  int patch = 14, merge = 2;  // sides, in pixels and in patches
  int frames = 2;             // of a patch, for Qwen2Vl and Pixtral
  // These are for Qwen2Vl. Sides are multiples of patch * merge, and pixels from least to most.
  int least_pixels = 56 * 56, most_pixels = 28 * 28 * 1280;
  // These are for Clip. The shortest edge is in pixels; 0 for a fixed size.
  int shortest_edge = 0;
  Size centre{};            // what is left of the middle; 0 x 0 for all
  bool pad_square = false;  // first, with the mean colour

  // These are for Lfm2Vl, and so are `split`, least_patches and most_patches, the numbers of tiles
  // of a grid. Gemma4 has most_tokens.
  int least_tokens = 64, most_tokens = 256;
  double tolerance = 2;  // a picture is cut that has so many times the pixels of most_tokens
  bool thumbnail = true;

  // These are for Pinpoints. A tile becomes feature_side^2 features. base_tokens are those of the
  // whole picture.
  std::vector<Extent> pinpoints = {};
  int feature_side = 0, base_tokens = 0;
  bool pads_many = false;  // of several pictures each is one tile, padded to a square first
  bool alone = true;       // whether a picture is the only one of its prompt; the caller knows
  int most_tiles = 0;      // features of a grid are made as few as those of so many tiles; 0: never

  bool has_mask() const { return kind == ProcessorKind::kIdefics3; }
  // Returns whether a picture keeps its shape and becomes blocks of patches.
  bool any_shape() const {
    return kind == ProcessorKind::kQwen2Vl || kind == ProcessorKind::kPixtral;
  }
  // Returns whether tiles are lists of patches, with rows and columns of their own.
  bool has_patches() const {
    return kind == ProcessorKind::kLfm2Vl || kind == ProcessorKind::kGemma4;
  }
  // Returns the patches that every tile of a list of patches is padded to; 0 for other kinds.
  int64_t max_patches() const;
};

// Returns the size that the processor gives a picture that keeps its shape, where it is not cut;
// other kinds leave it. kBadInput for a shape that the processor does not take.
Result<Size> processed_size(Size picture, const Settings& settings);

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
