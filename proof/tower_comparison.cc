#include "proof/tower_comparison.h"

#include <algorithm>
#include <map>
#include <span>
#include <string>
#include <utility>

#include "core/program_interface.h"
#include "core/text.h"
#include "proof/encoded_rows.h"

namespace ferry::proof {
namespace {

using Row = std::span<const float>;

// Returns the layer of the tower that computes a tensor; -1 for tensors before the first layer.
int64_t tower_layer(const std::string& name, const packer::Manifest& manifest,
                    const RowEncoder& encoder) {
  if (const auto after = number_after(name, encoder.states)) return *after - 1;
  return manifest.find(encoder.role)->programs.back().layer_count;
}

// The tensors of the reference that the tower computes for the pixels of a prompt.
struct TowerTensors {
  std::vector<std::string> order;
  std::map<std::string, Shape> shapes;
  std::map<std::string, std::vector<float>> values;
  std::vector<float> features;
};

// Returns the first columns of rows, which take the place of embeddings.
std::vector<float> embeddings_of(const runner::VisionEncoder& vision, Row rows) {
  std::vector<float> values;
  const auto width = static_cast<size_t>(vision.width());
  const auto stride = static_cast<size_t>(vision.row_width());
  for (size_t at = 0; at + stride <= rows.size(); at += stride) {
    const Row row = rows.subspan(at, width);
    values.insert(values.end(), row.begin(), row.end());
  }
  return values;
}

// The features of one tile; where these are joined, those of all tiles.
Shape feature_shape(const runner::VisionEncoder& vision, const PromptImages& images,
                    std::span<const float> features) {
  const int64_t width = vision.width();
  const int64_t rows =
      images.joins_features() ? std::ssize(features) / vision.row_width() : vision.rows();
  return {1, rows, width};
}

// Where the tower takes pictures of one shape in the place of lists of patches, the reference has
// rows of padding too. They are added to `values`, whose shape becomes that of the reference.
Status add_padding(const Reference& reference, const ReferencePrompt& prompt,
                   const PromptImages& images, const std::string& name, Shape& shape,
                   std::vector<float>& values) {
  const Shape stated = reference.shape(prompt, name);
  const size_t tiles = images.shapes.size();
  if (!images.list || tiles == 0 || stated.size() != 3 || stated[0] != shape[0] ||
      stated[1] <= shape[1] || stated[2] != shape[2]) {
    return {};
  }
  std::vector<float> padded = FERRY_TRY(reference.floats(prompt, name, stated));
  const size_t kept = values.size() / tiles, size = padded.size() / tiles;
  for (size_t tile = 0; tile < tiles; ++tile) {
    const auto rows = Row(values).subspan(tile * kept, kept);
    std::ranges::copy(rows, padded.begin() + static_cast<std::ptrdiff_t>(tile * size));
  }
  values = std::move(padded);
  shape = stated;
  return {};
}

Result<TowerTensors> run_tower(runner::VisionEncoder& vision, const ReferencePrompt& prompt,
                               const PromptImages& images) {
  TowerTensors out;
  FERRY_RETURN_IF_ERROR(
      vision.set_probe_sink([&](const std::string& name, const Shape& shape, Row values) {
        if (!prompt.has(name)) return;
        if (!out.shapes.contains(name)) out.order.push_back(name);
        out.shapes[name] = shape;
        out.values[name].insert(out.values[name].end(), values.begin(), values.end());
      }));
  Result<std::vector<float>> features = encode_kind(vision, images);
  FERRY_RETURN_IF_ERROR(vision.set_probe_sink({}));
  out.features = FERRY_TRY(std::move(features));
  if (const std::string output(images.encoder->output); prompt.has(output)) {
    out.order.push_back(output);
    out.shapes[output] = feature_shape(vision, images, out.features);
    out.values[output] = embeddings_of(vision, out.features);
  }
  return out;
}

}  // namespace

Result<TowerComparison> compare_tower(runner::VisionEncoder& vision,
                                      const packer::Manifest& manifest, const Reference& reference,
                                      const ReferencePrompt& prompt, const PromptImages& images,
                                      const ParityBounds& bounds, DetailCollector* details) {
  TowerTensors computed = FERRY_TRY(run_tower(vision, prompt, images));
  TowerComparison out;
  for (const std::string& name : computed.order) {
    const bool joined = images.joins_features() && name == images.encoder->output;
    std::vector<float>& values = computed.values[name];
    Shape shape =
        joined ? computed.shapes[name] : join_tower(images, name, computed.shapes[name], values);
    FERRY_RETURN_IF_ERROR(add_padding(reference, prompt, images, name, shape, values));
    const std::vector<float> want = FERRY_TRY(reference.floats(prompt, name, shape));
    ValueComparison comparison(bounds.noise_of(prompt.name, name));
    comparison.add(values, want);
    if (details != nullptr) details->add_whole(name, values, want);
    LayerResult& result = out.layers.emplace_back();
    result.tensor = {ReferenceTensor::Kind::kVision, name, name,
                     tower_layer(name, manifest, *images.encoder)};
    result.metrics = comparison.metrics();
    result.within = bounds.within(result.tensor, result.metrics);
  }
  out.features = std::move(computed.features);
  return out;
}

namespace {

// Encodes the pixels of images, sets their features, and adds the tensors to `source`.
Status record_kind(runner::VisionEncoder& vision, PromptImages& images, const std::string& prefix,
                   MemorySource& source) {
  std::map<std::string, std::pair<Shape, std::vector<float>>> tensors;
  FERRY_RETURN_IF_ERROR(
      vision.set_probe_sink([&](const std::string& probe, const Shape& shape, Row values) {
        auto& [sizes, all] = tensors[probe];
        sizes = shape;
        all.insert(all.end(), values.begin(), values.end());
      }));
  Result<std::vector<float>> features = encode_kind(vision, images);
  FERRY_RETURN_IF_ERROR(vision.set_probe_sink({}));
  images.features = FERRY_TRY(std::move(features));
  const std::string output(images.encoder->output);
  tensors[output] = {feature_shape(vision, images, images.features),
                     embeddings_of(vision, images.features)};
  for (auto& [tensor, recorded] : tensors) {
    const bool joined = images.joins_features() && tensor == output;
    if (!joined) recorded.first = join_tower(images, tensor, recorded.first, recorded.second);
    source.add(prefix + tensor, DType::kF32, recorded.first, recorded.second);
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<TensorSource>> record_tower(const runner::RowEncoders& encoders,
                                                   std::vector<RecordedPrompt>& prompts,
                                                   const std::string& name) {
  auto source = std::make_unique<MemorySource>(name);
  for (RecordedPrompt& prompt : prompts) {
    const std::string prefix = prompt.name.empty() ? "" : prompt.name + ".";
    bool recorded = false;
    for (PromptImages* images : prompt.images.kinds()) {
      runner::VisionEncoder* vision = encoders.find(*images->encoder);
      if (vision == nullptr || images->pixels.empty()) continue;
      FERRY_RETURN_IF_ERROR(record_kind(*vision, *images, prefix, *source));
      recorded = true;
    }
    if (!recorded) continue;
    source->add(prefix + "input_ids", DType::kI64, {1, std::ssize(prompt.tokens)}, prompt.tokens);
  }
  if (source->entries().empty()) return std::unique_ptr<TensorSource>();
  return std::unique_ptr<TensorSource>(std::move(source));
}

}  // namespace ferry::proof
