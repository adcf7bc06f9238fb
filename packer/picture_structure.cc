// Checks what the manifest states about pictures against the vision encoder, which takes them.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string_view>
#include <vector>

#include "core/program_interface.h"
#include "core/text.h"
#include "core/tiled_picture.h"
#include "packer/bundle_examination.h"

namespace ferry::packer {
namespace {

class PictureCheck {
 public:
  PictureCheck(const Manifest& model, ProblemList& problems) : model_(model), problems_(problems) {}

  void run() {
    const ManifestComponent* vision = model_.find(kVisionEncoderRole);
    image_grid(vision);
    image_tiles(vision);
    patch_list(vision);
    if (vision == nullptr) return;
    for (const ManifestProgram& program : vision->programs) {
      for (const ManifestMethod& method : program.methods) {
        for (const ManifestPort& port : method.inputs) pixels(program.file, port);
      }
    }
  }

 private:
  // Checks the numbers of image_grid, which sizes follow from.
  void image_grid(const ManifestComponent* vision) {
    if (!model_.image_grid) return;
    if (vision == nullptr) {
      add(kManifestName,
          fmt::format("has an image_grid but no component {}", quoted(kVisionEncoderRole)));
    }
    constexpr int64_t kMost = 1 << 14, kMostSide = 256;
    const ImageGrid& grid = *model_.image_grid;
    const auto check = [&](const char* name, int64_t value, int64_t least, int64_t most) {
      if (value >= least && value <= most) return;
      add(kManifestName,
          fmt::format("{} of image_grid is {}, expected {} to {}", name, value, least, most));
    };
    check("patch_size", grid.patch_size, 1, kMostSide);
    check("temporal_patch_size", grid.temporal_patch_size, 1, kMostSide);
    check("merge_size", grid.merge_size, 1, kMostSide);
    check("window_size", grid.window_size, 0, kMost);
    check("table_size", grid.table_size, 0, kMost);
  }

  // Checks the sizes of lists of patches.
  void patch_list(const ManifestComponent* vision) {
    if (!model_.patch_list) return;
    if (vision == nullptr || model_.image_grid) {
      add(kManifestName,
          fmt::format("has a patch_list {}", vision == nullptr ? "but no component vision_encoder"
                                                               : "beside an image_grid"));
    }
    constexpr int64_t kMostSide = 256;
    for (const int64_t side : {model_.patch_list->patch_size, model_.patch_list->merge_size}) {
      if (side >= 1 && side <= kMostSide) continue;
      add(kManifestName,
          fmt::format("patch_list has a side of {}, expected 1 to {}", side, kMostSide));
    }
  }

  // Checks that resolutions are of whole tiles, and that a tile has a square of features and the
  // newline behind it.
  void image_tiles(const ManifestComponent* vision) {
    if (!model_.image_tiles) return;
    if (vision == nullptr) {
      add(kManifestName,
          fmt::format("has image_tiles but no component {}", quoted(kVisionEncoderRole)));
    }
    const ManifestImageTiles& tiles = *model_.image_tiles;
    const std::vector<int64_t>& sides = tiles.resolutions;
    if (sides.empty() || sides.size() % 2 != 0 || sides.size() > 2 * kMaxResolutions) {
      add(kManifestName, fmt::format("image_tiles has {} sides of resolutions", sides.size()));
    }
    if (tiles.most_tiles < 0 || tiles.most_tiles > kMaxFewestTiles) {
      add(kManifestName, fmt::format("most_tiles of image_tiles is {}, expected 0 to {}",
                                     tiles.most_tiles, kMaxFewestTiles));
    }
    if (vision == nullptr) return;
    for (const ManifestProgram& program : vision->programs) {
      for (const ManifestMethod& method : program.methods) {
        for (const ManifestPort& port : method.inputs) resolutions(program.file, port);
        for (const ManifestPort& port : method.outputs) square_of_features(program.file, port);
      }
    }
  }

  void resolutions(const std::string& file, const ManifestPort& port) {
    if (port.name != kPixelValuesPort || port.shape.size() != 4) return;
    const std::vector<int64_t>& sides = model_.image_tiles->resolutions;
    for (size_t i = 0; i + 1 < sides.size(); i += 2) {
      if (is_resolution({sides[i], sides[i + 1]}, port.shape[3])) continue;
      return add(file,
                 fmt::format("image_tiles of the manifest has {} x {}, which is not of whole "
                             "tiles of {} {}",
                             sides[i], sides[i + 1], quoted(port.name), to_string(port.shape)));
    }
  }

  void square_of_features(const std::string& file, const ManifestPort& port) {
    if (port.name != kImageFeaturesPort || port.shape.size() != 3) return;
    const int64_t side =
        std::llround(std::sqrt(static_cast<double>(std::max<int64_t>(port.shape[1] - 1, 0))));
    if (side >= 1 && side * side + 1 == port.shape[1]) return;
    add(file, fmt::format("output {} is {}, which is no square of features and a newline",
                          quoted(port.name), to_string(port.shape)));
  }

  // Checks the blocks of patches that an encoder of images of any shape takes.
  void blocks(const std::string& file, const ManifestPort& port) {
    const ImageGrid& grid = *model_.image_grid;
    const int64_t sides = grid.merge_size * grid.patch_size;
    const int64_t most = port.shape.size() == 3 ? std::max<int64_t>(1, port.shape[1]) : 1;
    const Shape shape = {1, most, 3 * sides * sides * grid.temporal_patch_size};
    if (port.shape == shape) return;
    add(file, fmt::format("input {} is {}, not {} by the manifest's image_grid", quoted(port.name),
                          to_string(port.shape), to_string(shape)));
  }

  // Checks that pictures of one shape are of whole blocks.
  void picture(const std::string& file, const ManifestPort& port, int64_t side) {
    side = std::max<int64_t>(1, side);
    const auto whole = [&](int64_t pixels) { return pixels >= side && pixels % side == 0; };
    if (whole(port.shape[2]) && whole(port.shape[3])) return;
    add(file, fmt::format("input {} is {}, which is not of whole blocks of {} x {} pixels",
                          quoted(port.name), to_string(port.shape), side, side));
  }

  void pixels(const std::string& file, const ManifestPort& port) {
    const bool listed = port.shape.size() == 3 && port.shape[0] == 1;
    if (port.name == kSpatialShapesPort) return expect_shape(file, port, {1, 2});
    if (port.name != kPixelValuesPort) return;
    const bool planes = port.shape.size() == 4 && port.shape[0] == 1 && port.shape[1] == 3;
    if (model_.image_grid && planes && model_.version >= kPlacedRowsManifestVersion) {
      return picture(file, port, model_.image_grid->patch_size * model_.image_grid->merge_size);
    }
    if (model_.patch_list) {
      if (!planes) {
        return add(file,
                   fmt::format("input {} is {}, not [1, 3, H, W] as the manifest's patch_list "
                               "needs",
                               quoted(port.name), to_string(port.shape)));
      }
      return picture(file, port, model_.patch_list->patch_size * model_.patch_list->merge_size);
    }
    if (model_.image_grid) return blocks(file, port);
    if (listed) return;
    const bool square = port.shape.size() == 4 && port.shape[3] >= 1 &&
                        port.shape == Shape{1, 3, port.shape[3], port.shape[3]};
    if (square) return;
    add(file,
        fmt::format("input {} is {}, not [1, 3, S, S]", quoted(port.name), to_string(port.shape)));
  }

  void expect_shape(const std::string& file, const ManifestPort& port, const Shape& shape) {
    if (port.shape == shape) return;
    add(file, fmt::format("input {} is {}, not {}", quoted(port.name), to_string(port.shape),
                          to_string(shape)));
  }

  void add(std::string_view file, const std::string& what) {
    problems_.add(std::string(file), what);
  }

  const Manifest& model_;
  ProblemList& problems_;
};

}  // namespace

void check_pictures(const Manifest& manifest, ProblemList& problems) {
  PictureCheck(manifest, problems).run();
}

}  // namespace ferry::packer
