#include "runner/vision_encoder.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "core/checked.h"
#include "core/program_interface.h"
#include "core/text.h"
#include "runner/padded_sounds.h"
#include "runner/token_embedder.h"

namespace ferry::runner {
namespace {

constexpr int64_t kChannels = 3;
constexpr int64_t kCorners = 4;  // rows of learned positions around a patch
constexpr int64_t kMostSide = 1 << 14;
constexpr int64_t kMostBlocks = 1 << 20;
constexpr int64_t kMostPatches = 1 << 16, kMostPatchValues = 1 << 20;
constexpr int64_t kMostFrames = 1 << 17;
constexpr int64_t kSides = 2;  // of a shape: rows and columns

bool is_square_tile(const Shape& shape) {
  return shape.size() == 4 && shape[0] == 1 && shape[1] == kChannels && shape[2] == shape[3] &&
         shape[2] >= 1 && shape[2] <= kMostSide;
}
bool is_list_of_patches(const Shape& shape) {
  return shape.size() == 3 && shape[0] == 1 && shape[1] >= 1 && shape[1] <= kMostPatches &&
         shape[2] >= 1 && shape[2] <= kMostPatchValues;
}

// Returns the side of the squares of patches that become one row each; 0 if there are none.
int64_t side_of_square(const VisionEncoder::Sizes& sizes) {
  if (sizes.rows < 1) return 0;
  const int64_t area = sizes.patches / sizes.rows;
  const int64_t side = std::llround(std::sqrt(static_cast<double>(area)));
  return side > 0 && side * side * sizes.rows == sizes.patches ? side : 0;
}

using Ports = std::vector<packer::ManifestPort> packer::ManifestMethod::*;

// Finds an input or output among the programs of the component.
const packer::ManifestPort* find_vision_port(const packer::ManifestComponent& component,
                                             Ports ports, std::string_view name) {
  for (const packer::ManifestProgram& program : component.programs) {
    const packer::ManifestMethod* method = program.find(kForwardMethod);
    if (method == nullptr) continue;
    const auto found = std::ranges::find(method->*ports, name, &packer::ManifestPort::name);
    if (found != (method->*ports).end()) return &*found;
  }
  return nullptr;
}

Failure wrong_ports(const packer::Bundle& bundle, std::string_view expected) {
  return bad_input(
      fmt::format("{}: the vision encoder has no {}", printable(bundle.path()), expected));
}

// Returns the shape of the pictures whose planes are [1,3,H,W]; nullopt if they are not whole
// blocks, or the shape is of something else.
std::optional<ImageShape> picture_in(const PatchList& patches, const Shape& shape) {
  const int64_t side = patches.patch_size * patches.merge_size;
  if (shape.size() != 4 || shape[0] != 1 || shape[1] != kChannels) return std::nullopt;
  for (const int64_t pixels : {shape[2], shape[3]}) {
    if (pixels < side || pixels > kMostSide || pixels % side != 0) return std::nullopt;
  }
  return ImageShape{shape[2] / patches.patch_size, shape[3] / patches.patch_size};
}

// Returns the sizes of an encoder for images of any shape.
Result<VisionEncoder::Sizes> any_shape_sizes(const packer::Bundle& bundle,
                                             const packer::ManifestComponent& component) {
  const ImageGrid& grid = *bundle.manifest().image_grid;
  const auto* pixels =
      find_vision_port(component, &packer::ManifestMethod::inputs, kPixelValuesPort);
  const auto* features =
      find_vision_port(component, &packer::ManifestMethod::outputs, kImageFeaturesPort);
  const auto* deep = find_vision_port(component, &packer::ManifestMethod::outputs, kDeepstackPort);
  const auto in_range = [](int64_t n, int64_t least, int64_t most) {
    return n >= least && n <= most;
  };
  if (!in_range(grid.patch_size, 1, kMostSide) || !in_range(grid.temporal_patch_size, 1, 64) ||
      !in_range(grid.merge_size, 1, 64) || !in_range(grid.window_size, 0, kMostSide) ||
      !in_range(grid.table_size, 0, kMostSide)) {
    return bad_input(
        fmt::format("{}: image_grid has a number out of range", printable(bundle.path())));
  }
  const int64_t values = grid.merge_size * grid.merge_size * kChannels * grid.patch_size *
                         grid.patch_size * grid.temporal_patch_size;
  const PatchList patches = {grid.patch_size, grid.merge_size};
  const auto picture = pixels != nullptr ? picture_in(patches, pixels->shape) : std::nullopt;
  if (!picture && (pixels == nullptr || pixels->shape.size() != 3 || pixels->shape[0] != 1 ||
                   !in_range(pixels->shape[1], 1, kMostBlocks) || pixels->shape[2] != values)) {
    return wrong_ports(bundle, fmt::format("input {} of f32 [1, M, {}]", kPixelValuesPort, values));
  }
  const int64_t unit = grid.merge_size * grid.merge_size;
  const int64_t blocks = picture ? picture->patches() / unit : pixels->shape[1];
  const int64_t width = bundle.manifest().hidden_size, whole = embedding_width(bundle.manifest());
  const int64_t lines = picture ? picture->rows / grid.merge_size : 0;
  const bool marked =
      picture && features != nullptr && features->shape == Shape{1, blocks + lines, whole};
  if (!marked && (features == nullptr || features->shape != Shape{1, blocks, whole})) {
    return wrong_ports(
        bundle, fmt::format("output {} of f32 [1, {}, {}]", kImageFeaturesPort, blocks, whole));
  }
  const int64_t layers = deepstack_layers(bundle.manifest());
  if (layers > 0 && (deep == nullptr || deep->shape != Shape{layers, blocks, width})) {
    return wrong_ports(bundle,
                       fmt::format("output {} of f32 [{}, {}, {}], which the text decoder takes",
                                   kDeepstackPort, layers, blocks, width));
  }
  return VisionEncoder::Sizes{.tile = pixels->shape,
                              .rows = blocks,
                              .width = width,
                              .layers = layers,
                              .row_width = whole + layers * width,
                              .block_values = values,
                              .picture = picture,
                              .row_marks = marked ? lines : 0};
}

}  // namespace

namespace {

// Returns the sizes of an encoder of windows of frames, or of sounds of any number of frames.
Result<VisionEncoder::Sizes> window_sizes(const packer::Bundle& bundle,
                                          const packer::ManifestComponent& component) {
  const auto* frames =
      find_vision_port(component, &packer::ManifestMethod::inputs, kInputFeaturesPort);
  const auto* features =
      find_vision_port(component, &packer::ManifestMethod::outputs, kAudioFeaturesPort);
  const int64_t width = bundle.manifest().hidden_size, whole = embedding_width(bundle.manifest());
  const auto in_range = [](int64_t size) { return size >= 1 && size <= kMostFrames; };
  if (frames == nullptr || frames->shape.size() != 3 || frames->shape[0] != 1 ||
      !in_range(frames->shape[1]) || !in_range(frames->shape[2])) {
    return bad_input(fmt::format("{}: the audio encoder has no input {} of f32 [1, mels, frames]",
                                 printable(bundle.path()), kInputFeaturesPort));
  }
  if (features == nullptr || features->shape.size() != 3 || features->shape[0] != 1 ||
      !in_range(features->shape[1]) || features->shape[2] != whole) {
    return bad_input(fmt::format("{}: the audio encoder has no output {} of f32 [1, N, {}]",
                                 printable(bundle.path()), kAudioFeaturesPort, whole));
  }
  VisionEncoder::Sizes sizes{
      .tile = frames->shape, .rows = features->shape[1], .width = width, .row_width = whole};
  const auto& each = bundle.manifest().audio_row_frames;
  if (!each) return sizes;
  sizes.row_frames = *each;
  if (const auto& padded = bundle.manifest().audio_rows) {
    sizes.pads_sounds = true;
    sizes.is_causal = bundle.manifest().audio_causal_frames.has_value();
    if (in_range(*each) && *padded == sizes.rows) return sizes;
    return bad_input(fmt::format("{}: the audio encoder makes {} rows of {} frames, not {}",
                                 printable(bundle.path()), sizes.rows, frames->shape[1], *padded));
  }
  sizes.block_rows = bundle.manifest().audio_block_rows.value_or(1);
  const bool counted = in_range(*each) && in_range(sizes.block_rows);
  if (counted && sizes.rows_of_frames(frames->shape[1]) == sizes.rows) return sizes;
  return bad_input(fmt::format("{}: the audio encoder makes {} rows of {} frames, not {} of {}",
                               printable(bundle.path()), sizes.rows, frames->shape[1],
                               sizes.block_rows, *each));
}

}  // namespace

bool VisionEncoder::is_in(const packer::Bundle& bundle) {
  return bundle.manifest().find(kVisionEncoderRole) != nullptr;
}

Result<VisionEncoder::Sizes> VisionEncoder::sizes_in(const packer::Bundle& bundle,
                                                     const RowEncoder& encoder) {
  const packer::ManifestComponent* component = bundle.manifest().find(encoder.role);
  if (component == nullptr) {
    return bad_input(
        fmt::format("{}: has no component {}", printable(bundle.path()), encoder.role));
  }
  if (encoder.role == kAudioEncoderRole) return window_sizes(bundle, *component);
  if (bundle.manifest().image_grid) return any_shape_sizes(bundle, *component);
  const auto* pixels =
      find_vision_port(*component, &packer::ManifestMethod::inputs, kPixelValuesPort);
  const auto* features =
      find_vision_port(*component, &packer::ManifestMethod::outputs, kImageFeaturesPort);
  const int64_t width = bundle.manifest().hidden_size, whole = embedding_width(bundle.manifest());
  const auto& list = bundle.manifest().patch_list;
  const auto picture = list && pixels != nullptr ? picture_in(*list, pixels->shape) : std::nullopt;
  const bool square = pixels != nullptr && (picture || is_square_tile(pixels->shape));
  const bool listed = pixels != nullptr && is_list_of_patches(pixels->shape);
  if (!square && !listed) {
    return bad_input(
        fmt::format("{}: the vision encoder has no input {} of f32 [1, 3, S, S] or [1, P, V]",
                    printable(bundle.path()), kPixelValuesPort));
  }
  if (features == nullptr || features->shape.size() != 3 || features->shape[0] != 1 ||
      features->shape[1] < 1) {
    return bad_input(fmt::format("{}: the vision encoder has no output {} of f32 [1, N, {}]",
                                 printable(bundle.path()), kImageFeaturesPort, whole));
  }
  if (features->shape[2] != whole) {
    return bad_input(fmt::format("{}: image features are {} wide, the text decoder takes {}",
                                 printable(bundle.path()), features->shape[2], whole));
  }
  Sizes sizes{.tile = pixels->shape,
              .rows = features->shape[1],
              .width = width,
              .row_width = whole,
              .picture = picture};
  if (picture) {
    if (sizes.rows * list->merge_size * list->merge_size == picture->patches()) return sizes;
    return bad_input(fmt::format("{}: the vision encoder makes {} features of {} patches",
                                 printable(bundle.path()), sizes.rows, picture->patches()));
  }
  if (bundle.manifest().image_tiles) {
    sizes.tiles = PictureTiles::in(bundle.manifest(), pixels->shape, features->shape);
    if (!sizes.tiles) {
      return bad_input(fmt::format(
          "{}: image_tiles does not fit the vision encoder, which makes {} of {}",
          printable(bundle.path()), to_string(features->shape), to_string(pixels->shape)));
    }
  }
  (square ? sizes.image_size : sizes.patches) = square ? pixels->shape[2] : pixels->shape[1];
  if (listed && side_of_square(sizes) == 0) {
    return bad_input(
        fmt::format("{}: the vision encoder makes {} features of {} patches, not one "
                    "of each square of them",
                    printable(bundle.path()), sizes.rows, sizes.patches));
  }
  return sizes;
}

bool VisionEncoder::Sizes::takes(const ImageShape& shape) const {
  const int64_t side = side_of_square(*this), height = shape.rows, columns = shape.columns;
  return side > 0 && height > 0 && columns > 0 && height <= patches && columns <= patches &&
         height * columns <= patches && height % side == 0 && columns % side == 0;
}

Result<VisionEncoder> VisionEncoder::load(const packer::Bundle& bundle, ThreadPool& pool,
                                          const MethodOptions& options, const RowEncoder& rows) {
  ProgramSet set = FERRY_TRY(ProgramSet::load(bundle, rows.role, pool, options));
  const Sizes sizes = FERRY_TRY(sizes_in(bundle, rows));
  std::vector<PortType> inputs = {{rows.input, DType::kF32, sizes.tile}};
  if (sizes.patches > 0) inputs.push_back({kSpatialShapesPort, DType::kI64, {1, kSides}});
  const int64_t given = sizes.row_width - sizes.layers * sizes.width;
  std::vector<PortType> outputs = {
      {rows.output, DType::kF32, {1, sizes.rows + sizes.row_marks, given}}};
  if (sizes.block_values > 0 && !sizes.picture) {
    const ImageGrid& grid = *bundle.manifest().image_grid;
    const int64_t patches = sizes.rows * grid.merge_size * grid.merge_size;
    inputs = {{kPixelValuesPort, DType::kF32, {1, sizes.rows, sizes.block_values}},
              {kPatchPositionsPort, DType::kI64, {2, patches}}};
    const PortType others[] = {{kPatchWindowsPort, DType::kI64, {1, patches}},
                               {kPositionRowsPort, DType::kI64, {kCorners, patches}},
                               {kPositionWeightsPort, DType::kF32, {kCorners, patches}}};
    const packer::ManifestComponent& component = *bundle.manifest().find(kVisionEncoderRole);
    for (const PortType& port : others) {
      if (find_vision_port(component, &packer::ManifestMethod::inputs, port.name) == nullptr)
        continue;
      inputs.push_back(port);
    }
    if (sizes.layers > 0) {
      outputs.push_back({kDeepstackPort, DType::kF32, {sizes.layers, sizes.rows, sizes.width}});
    }
  }
  MethodChain chain = FERRY_TRY(set.bind(kForwardMethod, inputs, outputs));
  VisionEncoder encoder(std::move(set), std::move(chain));
  encoder.sizes_ = sizes;
  for (const PortType& port : inputs) encoder.inputs_.emplace_back(port.name);
  return encoder;
}

Result<std::vector<float>> VisionEncoder::encode(std::span<const float> pixels,
                                                 std::span<const ImageShape> shapes) {
  if (!takes_any_shape()) return encode_tiles(pixels, shapes);
  const ImageGrid& grid = *set_.bundle().manifest().image_grid;
  const std::string where = printable(set_.bundle().path());
  size_t values = 0;
  for (const ImageShape& shape : shapes) {
    FERRY_RETURN_IF_ERROR(check_picture(sizes_.picture, shape, where));
    FERRY_RETURN_IF_ERROR(check_image_shape(grid, shape, rows(), where));
    values += static_cast<size_t>(shape.patches() / (grid.merge_size * grid.merge_size) *
                                  sizes_.block_values);
  }
  if (pixels.size() != values) {
    return fail(ErrorCode::kUsage,
                fmt::format("{}: {} pixel values for images of {}", where, pixels.size(), values));
  }
  std::vector<float> rows;
  for (const ImageShape& shape : shapes) {
    const auto count = static_cast<size_t>(shape.patches() / (grid.merge_size * grid.merge_size) *
                                           sizes_.block_values);
    const auto patches = pixels.first(count);
    FERRY_RETURN_IF_ERROR(
        sizes_.picture ? encode_planes(FERRY_TRY(planes_of_patches(patches, grid, shape)), rows)
                       : encode_image(patches, shape, rows));
    pixels = pixels.subspan(count);
  }
  return rows;
}

Status VisionEncoder::encode_planes(std::span<const float> planes, std::vector<float>& rows) {
  chain_.input(0).bytes = std::as_bytes(planes);
  FERRY_RETURN_IF_ERROR(chain_.run());
  if (sizes_.row_marks == 0) return append_rows(rows, sizes_.rows);
  std::vector<float> marked;
  FERRY_RETURN_IF_ERROR(append_rows(marked, sizes_.rows + sizes_.row_marks));
  const std::vector<float> features = without_row_marks(marked, sizes_.rows, sizes_.row_marks);
  rows.insert(rows.end(), features.begin(), features.end());
  return {};
}

Result<std::vector<float>> VisionEncoder::encode_frames(std::span<const float> frames) {
  const int64_t most = sizes_.most_frames(), mels = sizes_.tile[2];
  const int64_t count = std::ssize(frames) / mels;
  if (count * mels != std::ssize(frames) || count < 1 || count > most) {
    return fail(ErrorCode::kUsage,
                fmt::format("{}: a sound of {} frames, the audio encoder takes 1 to {}",
                            printable(set_.bundle().path()), count, most));
  }
  chain_.input(0).shape[1] = count;
  chain_.input(0).bytes = std::as_bytes(frames);
  FERRY_RETURN_IF_ERROR(chain_.run());
  std::vector<float> rows;
  FERRY_RETURN_IF_ERROR(append_rows(rows, sizes_.rows_of_frames(count)));
  return rows;
}

Result<std::vector<float>> VisionEncoder::encode_sounds(std::span<const float> frames,
                                                        std::span<const int64_t> shown) {
  const SoundSizes sizes{.mels = sizes_.tile[2],
                         .row_frames = sizes_.row_frames,
                         .padded_rows = sizes_.pads_sounds ? rows() : 0,
                         .is_causal = sizes_.is_causal};
  return rows_of_sounds(sizes, frames, shown, [this](std::span<const float> sound, bool aside) {
    if (!aside) return encode_frames(sound);
    ProbeSink kept = std::exchange(*sink_, {});
    Result<std::vector<float>> rows = encode_frames(sound);
    *sink_ = std::move(kept);
    return rows;
  });
}

Status VisionEncoder::append_rows(std::vector<float>& rows, int64_t kept) {
  const int64_t given = sizes_.row_frames > 0 ? kept : sizes_.rows + sizes_.row_marks;
  const auto size = static_cast<size_t>(given * row_width());
  const std::span<const std::byte> out = chain_.output(0).bytes;
  if (out.size() != size * sizeof(float)) {
    return bad_input(fmt::format("{}: the encoder gave {} values, expected {}",
                                 printable(set_.bundle().path()), out.size() / sizeof(float),
                                 size));
  }
  const size_t before = rows.size();
  rows.resize(before + static_cast<size_t>(kept * row_width()));
  std::memcpy(rows.data() + before, out.data(), (rows.size() - before) * sizeof(float));
  return {};
}

Status VisionEncoder::encode_image(std::span<const float> pixels, const ImageShape& shape,
                                   std::vector<float>& rows) {
  const GridInputs grid = grid_inputs(*set_.bundle().manifest().image_grid, shape);
  const std::vector<float> ordered = take_blocks(pixels, grid.blocks);
  const int64_t blocks = std::ssize(grid.blocks);
  const auto bytes_of = [&](std::string_view name) -> std::span<const std::byte> {
    if (name == kPixelValuesPort) return std::as_bytes(std::span(ordered));
    if (name == kPatchPositionsPort) return std::as_bytes(std::span(grid.positions));
    if (name == kPatchWindowsPort) return std::as_bytes(std::span(grid.windows));
    if (name == kPositionRowsPort) return std::as_bytes(std::span(grid.table_rows));
    return std::as_bytes(std::span(grid.table_weights));
  };
  for (size_t i = 0; i < inputs_.size(); ++i) {
    TensorView& input = chain_.input(i);
    input.shape[1] = inputs_[i] == kPixelValuesPort ? blocks : shape.patches();
    input.bytes = bytes_of(inputs_[i]);
  }
  FERRY_RETURN_IF_ERROR(chain_.run());
  const size_t at = rows.size();
  rows.resize(at + static_cast<size_t>(blocks * row_width()));
  FERRY_RETURN_IF_ERROR(take_output(0, grid, 0, 1, rows.data() + at));
  return sizes_.layers > 0 ? take_output(1, grid, 1, sizes_.layers, rows.data() + at) : Status();
}

Status VisionEncoder::take_output(size_t output, const GridInputs& grid, int64_t first,
                                  int64_t layers, float* rows) const {
  const std::span<const std::byte> bytes = chain_.output(output).bytes;
  const size_t width = static_cast<size_t>(sizes_.width), size = grid.blocks.size() * width;
  if (bytes.size() != static_cast<size_t>(layers) * size * sizeof(float)) {
    return bad_input(fmt::format("{}: the vision encoder gave {} values, expected {}",
                                 printable(set_.bundle().path()), bytes.size() / sizeof(float),
                                 static_cast<size_t>(layers) * size));
  }
  // A tensor's memory is aligned to its dtype, which bind() has checked.
  const std::span values(reinterpret_cast<const float*>(bytes.data()),
                         bytes.size() / sizeof(float));
  for (int64_t layer = 0; layer < layers; ++layer) {
    put_blocks(values.subspan(static_cast<size_t>(layer) * size, size), grid.blocks, width,
               static_cast<size_t>(row_width()),
               rows + static_cast<size_t>((first + layer) * sizes_.width));
  }
  return {};
}

Status VisionEncoder::check_shapes(std::span<const ImageShape> shapes, size_t tiles) const {
  const auto taken = [&](const ImageShape& shape) { return sizes_.takes(shape); };
  const size_t wanted = sizes_.patches > 0 ? tiles : 0;
  if (shapes.size() == wanted && std::ranges::all_of(shapes, taken)) return {};
  return fail(ErrorCode::kUsage,
              fmt::format("{}: the shapes of {} tiles are not those of lists of up to {} patches",
                          printable(set_.bundle().path()), tiles, sizes_.patches));
}

Result<std::vector<float>> VisionEncoder::encode_lists(std::span<const float> pixels,
                                                       std::span<const ImageShape> shapes) {
  const PatchList& list = *set_.bundle().manifest().patch_list;
  const std::string where = printable(set_.bundle().path());
  const size_t size = shapes.empty() ? 0 : pixels.size() / shapes.size();
  const auto least = static_cast<size_t>(sizes_.picture->patches() * list.values());
  if (size < least || size % static_cast<size_t>(list.values()) != 0) {
    return fail(ErrorCode::kUsage, fmt::format("{}: {} pixel values for {} lists of patches", where,
                                               pixels.size(), shapes.size()));
  }
  std::vector<float> rows;
  for (size_t i = 0; i < shapes.size(); ++i) {
    FERRY_RETURN_IF_ERROR(check_picture(sizes_.picture, shapes[i], where));
    const std::vector<float> planes =
        planes_of_list(pixels.subspan(i * size, size), list, shapes[i]);
    FERRY_RETURN_IF_ERROR(encode_planes(planes, rows));
  }
  return rows;
}

Result<std::vector<float>> VisionEncoder::encode_tiles(std::span<const float> pixels,
                                                       std::span<const ImageShape> shapes) {
  if (sizes_.row_frames > 0) return encode_frames(pixels);
  if (sizes_.picture) return encode_lists(pixels, shapes);
  if (!sizes_.tiles) {
    FERRY_RETURN_IF_ERROR(
        check_shapes(shapes, pixels.size() / static_cast<size_t>(*checked_numel(sizes_.tile))));
    return features_of_tiles(pixels, shapes);
  }
  const std::string where = printable(set_.bundle().path());
  const int64_t tiles = std::ssize(pixels) / *checked_numel(sizes_.tile);
  FERRY_RETURN_IF_ERROR(sizes_.tiles->tiles_of(shapes, tiles, where));
  const std::vector<float> features = FERRY_TRY(features_of_tiles(pixels, {}));
  return pack_pictures(*sizes_.tiles, shapes, features, width(), where);
}

Result<std::vector<float>> VisionEncoder::features_of_tiles(std::span<const float> pixels,
                                                            std::span<const ImageShape> shapes) {
  const auto tile = static_cast<size_t>(*checked_numel(sizes_.tile));
  if (pixels.empty() || pixels.size() % tile != 0) {
    const std::span<const int64_t> sides = std::span(sizes_.tile).subspan(1);
    return fail(
        ErrorCode::kUsage,
        fmt::format("{}: {} {} are not whole tiles of {} ({})", printable(set_.bundle().path()),
                    pixels.size(), inputs_.front() == kPixelValuesPort ? "pixel values" : "values",
                    tile, fmt::join(sides, " x ")));
  }
  std::vector<float> features;
  for (size_t i = 0; i < pixels.size() / tile; ++i) {
    chain_.input(0).bytes = std::as_bytes(pixels.subspan(i * tile, tile));
    if (!shapes.empty()) chain_.input(1).bytes = std::as_bytes(shapes.subspan(i, 1));
    FERRY_RETURN_IF_ERROR(chain_.run());
    FERRY_RETURN_IF_ERROR(
        append_rows(features, shapes.empty() ? rows() : sizes_.rows_of(shapes[i])));
  }
  return features;
}

Status VisionEncoder::set_probe_sink(ProbeSink sink) {
  *sink_ = std::move(sink);
  if (!*sink_ || std::exchange(observing_, true)) return {};
  // Pictures of one shape are not in the order of windows.
  std::vector<int64_t> order;
  if (sizes_.picture && takes_any_shape()) {
    order = grid_inputs(*set_.bundle().manifest().image_grid, *sizes_.picture).blocks;
  }
  for (const MethodChain::Link& link : chain_.links()) {
    for (const packer::ManifestProbe& probe : link.ports->probes) {
      FERRY_RETURN_IF_ERROR(link.method->observe(
          probe.value, [sink = sink_.get(), name = probe.name, order](const TensorView& value) {
            if (!*sink) return;
            const std::vector<float> values = probe_floats(value);
            (*sink)(name, value.shape, order.empty() ? values : take_blocks(values, order));
          }));
    }
  }
  return {};
}

}  // namespace ferry::runner
