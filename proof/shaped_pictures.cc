#include "proof/shaped_pictures.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <string>

#include "core/image_grid.h"
#include "core/program_interface.h"
#include "proof/row_ports.h"
#include "runner/token_embedder.h"

namespace ferry::proof {
namespace {

// The heights and widths of images that are planes, in pixels.
constexpr const char* kImageSizes = "image_sizes";
constexpr int64_t kMostGroups = 1 << 16;  // of frames of a video
constexpr const char* kImageGrids = "image_grid_thw";
constexpr const char* kVideoGrids = "video_grid_thw";
constexpr const char* kVideoPixels = "pixel_values_videos";

// Adds the shape of an image of any shape.
Status add_shape(const packer::Manifest& manifest, ImageShape shape, const std::string& who,
                 PromptImages& images) {
  images.shapes.push_back(shape);
  FERRY_RETURN_IF_ERROR(check_picture(images.picture, shape, who));
  return check_image_shape(*manifest.image_grid, shape, most_blocks(manifest), who);
}

// Reads the rows and columns of patches of images of any shape, or of the groups of frames of
// videos.
Status read_grids_of(const Reference& reference, const ReferencePrompt& prompt,
                     const packer::Manifest& manifest, bool videos, PromptImages& images) {
  const std::string who = name_of(reference, prompt);
  const std::string name = videos ? kVideoGrids : kImageGrids;
  if (!prompt.has(name)) return bad_input(fmt::format("{}: has no {}", who, name));
  const Shape shape = reference.shape(prompt, name);
  if (shape.size() != 2 || shape[0] < 1 || shape[1] != 3) {
    return bad_input(
        fmt::format("{}: {} is {}, expected [images, 3]", who, name, to_string(shape)));
  }
  const std::vector<int64_t> numbers = FERRY_TRY(reference.integers(prompt, name, shape));
  for (size_t i = 0; i < numbers.size(); i += 3) {
    const int64_t groups = numbers[i], most = videos ? kMostGroups : 1;
    if (groups < 1 || groups > most) {
      return fail(
          ErrorCode::kUnsupported,
          fmt::format("{}: {} has an image of {} frames: not supported", who, name, groups));
    }
    if (videos) images.video_groups.push_back(groups);
    for (int64_t group = 0; group < groups; ++group) {
      FERRY_RETURN_IF_ERROR(add_shape(manifest, {numbers[i + 1], numbers[i + 2]}, who, images));
    }
  }
  return {};
}

Status read_grids(const Reference& reference, const ReferencePrompt& prompt,
                  const packer::Manifest& manifest, PromptImages& images) {
  const bool both = prompt.has_videos() && prompt.has_stills();
  if (both || !prompt.has_videos()) {
    FERRY_RETURN_IF_ERROR(read_grids_of(reference, prompt, manifest, /*videos=*/false, images));
  }
  if (both) images.stills = images.shapes.size();
  if (!prompt.has_videos()) return {};
  return read_grids_of(reference, prompt, manifest, /*videos=*/true, images);
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

int64_t patches_of(std::span<const ImageShape> shapes) {
  int64_t patches = 0;
  for (const ImageShape& shape : shapes) patches += shape.patches();
  return patches;
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

}  // namespace

Status read_shapes(const Reference& reference, const ReferencePrompt& prompt,
                   const packer::Manifest& manifest, PromptImages& images) {
  images.grid = manifest.image_grid;
  images.picture = picture_of(manifest);
  images.placed = runner::has_places(manifest);
  const auto read = prompt.has(kImageSizes) ? read_image_sizes : read_grids;
  return read(reference, prompt, manifest, images);
}

Status read_patches(const Reference& reference, const ReferencePrompt& prompt,
                    PromptImages& images) {
  if (prompt.has(kImageSizes)) return cut_planes(reference, prompt, images);
  const ImageGrid& grid = *images.grid;
  const int64_t values = 3 * grid.patch_size * grid.patch_size * grid.temporal_patch_size;
  const std::span<const ImageShape> all = images.shapes;
  const size_t stills = prompt.has_videos() ? images.stills : all.size();
  for (const bool videos : {false, true}) {
    const auto shapes = videos ? all.subspan(stills) : all.first(stills);
    if (shapes.empty()) continue;
    const std::string name = videos ? kVideoPixels : std::string(kPixelValuesPort);
    const Shape expected = {patches_of(shapes), values};
    const Shape shape = prompt.has(name) ? reference.shape(prompt, name) : Shape();
    if (shape != expected) {
      return bad_input(fmt::format("{}: {} are {}, the vision encoder takes {} for {}",
                                   name_of(reference, prompt), name, to_string(shape),
                                   to_string(expected), videos ? kVideoGrids : kImageGrids));
    }
    const std::vector<float> own = FERRY_TRY(reference.floats(prompt, name, shape));
    images.pixels.insert(images.pixels.end(), own.begin(), own.end());
  }
  images.pixel_shape = {patches_of(all), values};
  return {};
}

int64_t blocks_of(const PromptImages& images) {
  return patches_of(images.shapes) / (images.grid->merge_size * images.grid->merge_size);
}

}  // namespace ferry::proof
