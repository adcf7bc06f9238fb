#include "proof/image_inputs.h"

#include <algorithm>
#include <string>
#include <utility>

#include "core/image_grid.h"
#include "core/program_interface.h"
#include "proof/encoded_rows.h"
#include "proof/prompt_sounds.h"
#include "proof/row_ports.h"
#include "runner/deepstack_rows.h"
#include "runner/method.h"
#include "runner/rope_places.h"
#include "runner/token_embedder.h"

namespace ferry::proof {
namespace {

Passed passed_values(DType dtype, Shape shape, std::span<const std::byte> bytes) {
  return {dtype, std::move(shape), {bytes.begin(), bytes.end()}};
}
Passed passed_f32(Shape shape, const std::vector<float>& values) {
  return passed_values(DType::kF32, std::move(shape), std::as_bytes(std::span(values)));
}
Passed passed_i64(Shape shape, const std::vector<int64_t>& values) {
  return passed_values(DType::kI64, std::move(shape), std::as_bytes(std::span(values)));
}
std::vector<float> floats_in(const Passed& passed) {
  return runner::probe_floats({passed.dtype, passed.shape, passed.bytes});
}

Passed planes(const ImageShape& shape, int64_t patch, const std::vector<float>& values) {
  return passed_f32({1, 3, shape.rows * patch, shape.columns * patch}, values);
}

// Returns the output of the encoder for one tile.
Result<Passed> run_tile(LoadedPart& part, const PromptImages& images, PassedTensors passed) {
  part.method().reset();
  FERRY_RETURN_IF_ERROR(part.run({}, 0, passed));
  return passed.at(std::string(images.encoder->output));
}

// Appends the features of tile `number`, in the order of the program.
Status encode_tile(LoadedPart& part, const PromptImages& images, size_t number,
                   std::span<const float> pixels, std::vector<float>& features) {
  Shape shape = images.pixel_shape;
  shape[0] = 1;
  PassedTensors passed;
  passed[std::string(images.encoder->input)] =
      passed_values(DType::kF32, shape, std::as_bytes(pixels));
  if (images.picture) {
    passed[std::string(kPixelValuesPort)] =
        planes(*images.picture, images.list->patch_size,
               planes_of_list(pixels, *images.list, *images.picture));
  } else if (images.has_lists()) {
    const auto sides = std::as_bytes(std::span(images.shapes).subspan(number, 1));
    passed[std::string(kSpatialShapesPort)] = passed_values(DType::kI64, {1, 2}, sides);
  }
  const Passed output = FERRY_TRY(run_tile(part, images, std::move(passed)));
  const std::vector<float> rows = floats_in(output);
  const int64_t kept = images.rows_of(number, output.shape[1]) * output.shape[2];
  features.insert(features.end(), rows.begin(), rows.begin() + kept);
  return {};
}

// Returns the rows of sounds of which some are padded.
Result<std::vector<float>> encode_sounds(LoadedPart& part, const PromptImages& images,
                                         const std::function<void()>& forget) {
  return runner::rows_of_sounds(
      sound_sizes(images), images.pixels, images.shown_frames,
      [&](std::span<const float> frames, bool aside) -> Result<std::vector<float>> {
        const int64_t count = std::ssize(frames) / images.pixel_shape[2];
        PassedTensors passed;
        passed[std::string(images.encoder->input)] =
            passed_values(DType::kF32, {1, count, images.pixel_shape[2]}, std::as_bytes(frames));
        const Passed output = FERRY_TRY(run_tile(part, images, std::move(passed)));
        if (aside && forget) forget();
        return floats_in(output);
      });
}

// Appends the rows of one picture of the shape that the encoder takes.
Status encode_picture(LoadedPart& part, const ImageGrid& grid, const ImageShape& shape,
                      std::span<const float> pixels, std::vector<float>& features) {
  PassedTensors passed;
  passed[std::string(kPixelValuesPort)] =
      planes(shape, grid.patch_size, FERRY_TRY(planes_of_patches(pixels, grid, shape)));
  part.method().reset();
  FERRY_RETURN_IF_ERROR(part.run({}, 0, passed));
  const Passed& output = passed.at(std::string(kImageFeaturesPort));
  const int64_t blocks = shape.patches() / (grid.merge_size * grid.merge_size);
  std::vector<float> rows = floats_in(output);
  if (const int64_t marks = output.shape[1] - blocks; marks > 0) {
    rows = without_row_marks(rows, blocks, marks);
  }
  features.insert(features.end(), rows.begin(), rows.end());
  return {};
}

// Appends the rows of one image of any shape.
Status encode_image(LoadedPart& part, const ImageGrid& grid, const ImageShape& shape,
                    std::span<const float> pixels, std::vector<float>& features) {
  const GridInputs inputs = grid_inputs(grid, shape);
  const int64_t blocks = std::ssize(inputs.blocks), patches = shape.patches();
  PassedTensors passed;
  passed[std::string(kPixelValuesPort)] =
      passed_f32({1, blocks, std::ssize(pixels) / blocks}, take_blocks(pixels, inputs.blocks));
  passed[std::string(kPatchPositionsPort)] = passed_i64({2, patches}, inputs.positions);
  passed[std::string(kPatchWindowsPort)] = passed_i64({1, patches}, inputs.windows);
  passed[std::string(kPositionRowsPort)] = passed_i64({4, patches}, inputs.table_rows);
  passed[std::string(kPositionWeightsPort)] = passed_f32({4, patches}, inputs.table_weights);
  part.method().reset();
  FERRY_RETURN_IF_ERROR(part.run({}, 0, passed));
  const Passed& output = passed.at(std::string(kImageFeaturesPort));
  std::vector<float> values = floats_in(output);
  if (const auto deep = passed.find(std::string(kDeepstackPort)); deep != passed.end()) {
    const std::vector<float> more = floats_in(deep->second);
    values.insert(values.end(), more.begin(), more.end());
  }
  const auto width = static_cast<size_t>(output.shape.back());
  const size_t size = static_cast<size_t>(blocks) * width, layers = values.size() / size;
  const size_t at = features.size();
  features.resize(at + values.size());
  for (size_t layer = 0; layer < layers; ++layer) {
    put_blocks(std::span(values).subspan(layer * size, size), inputs.blocks, width, layers * width,
               features.data() + at + layer * width);
  }
  return {};
}

}  // namespace

Result<std::vector<float>> encode_images(LoadedPart& part, const PromptImages& images,
                                         const std::function<void()>& forget) {
  if (!images.shown_frames.empty()) return encode_sounds(part, images, forget);
  std::vector<float> features;
  std::span<const float> pixels = images.pixels;
  if (!images.grid) {
    const auto tiles = static_cast<size_t>(images.pixel_shape[0]);
    const size_t size = pixels.size() / tiles;
    for (size_t t = 0; t < tiles; ++t) {
      const auto tile = pixels.subspan(t * size, size);
      FERRY_RETURN_IF_ERROR(encode_tile(part, images, t, tile, features));
    }
    if (images.tiled) return rows_of_tiles(images, features);
    return features;
  }
  for (const ImageShape& shape : images.shapes) {
    const auto size = static_cast<size_t>(shape.patches() * images.pixel_shape[1]);
    const auto encode_one = images.picture ? encode_picture : encode_image;
    FERRY_RETURN_IF_ERROR(encode_one(part, *images.grid, shape, pixels.first(size), features));
    pixels = pixels.subspan(size);
  }
  return features;
}

namespace {

// Gives lists of patches the length that the programs take.
void fit_lists(const packer::Manifest& manifest, PromptImages& images) {
  const Shape tile = tile_shape(manifest);
  if (picture_of(manifest) || tile.size() != 3 || images.pixel_shape.size() != 3) return;
  fit_list_length(images.pixel_shape, images.pixels, tile[1]);
  images.picture.reset();
  images.list.reset();
}

}  // namespace

void fit_images(const packer::Manifest& manifest, PromptImages& images) {
  if (images.list) return fit_lists(manifest, images);
  if (!images.grid) return;
  images.picture = picture_of(manifest);
  const bool videos = !images.video_groups.empty();  // whose runs have their places
  images.placed =
      runner::has_places(manifest) && (videos || images.runs.size() == images.shapes.size());
  for (size_t i = 0; images.placed && !videos && i < images.runs.size(); ++i) {
    images.runs[i].grid_rows = images.shapes[i].rows / images.grid->merge_size;
    images.runs[i].grid_columns = images.shapes[i].columns / images.grid->merge_size;
  }
}

Status merge_image_rows(const PromptImages& images, std::span<const runner::EmbeddingRows> all,
                        int64_t position, int64_t count, PassedTensors& passed) {
  Passed& embeddings = passed.at(std::string(kEmbeddingsPort));
  const int64_t width = embeddings.shape.back();
  int64_t total = 0, given = 0;
  for (const PromptImages* kind : images.kinds()) total += kind->row_count();
  for (const runner::EmbeddingRows& rows : all) given += std::ssize(rows.values);
  if (total > 0 && given % (total * width) != 0) {
    return fail(ErrorCode::kInternal, "placeholders of an image do not fit its features");
  }
  const int64_t stride = total > 0 ? given / total : width;
  std::vector<float> values = floats_in(embeddings);
  for (const runner::EmbeddingRows& rows : all) {
    for (int64_t row = 0; row < std::ssize(rows.values) / stride; ++row) {
      const int64_t at = rows.first + row - position;
      if (at < 0 || at >= count) continue;
      std::ranges::copy(
          rows.values.subspan(static_cast<size_t>(row * stride), static_cast<size_t>(width)),
          values.begin() + at * width);
    }
  }
  embeddings = passed_f32(embeddings.shape, values);
  passed[std::string(kAttentionEndPort)] = attention_end(images, position, count);
  if (!images.placed) return {};
  runner::RopePlaces places;
  places.set(all, 0);
  std::vector<int64_t> numbers(static_cast<size_t>(3 * count));
  places.write(position, static_cast<size_t>(count), numbers.data());
  passed[std::string(kRopePositionsPort)] = passed_i64({3, count}, numbers);
  const int64_t layers = stride / width - 1;
  if (layers == 0) return {};
  runner::DeepstackRows deepstack(layers, count, width);
  deepstack.set(all);
  passed[std::string(kDeepstackPort)] = passed_values(
      DType::kF32, {layers, count, width}, std::as_bytes(deepstack.of_call(position, count)));
  return {};
}

std::vector<int64_t> text_places(int64_t position, size_t count) {
  std::vector<int64_t> places(3 * count);
  runner::RopePlaces().write(position, count, places.data());
  return places;
}

}  // namespace ferry::proof
