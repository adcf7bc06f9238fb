#include "proof/sequences.h"

#include <algorithm>
#include <span>
#include <string>
#include <utility>

#include "core/program_interface.h"
#include "runner/method.h"

namespace ferry::proof {
namespace {

Passed passed_floats(Shape shape, std::span<const float> values) {
  const auto bytes = std::as_bytes(values);
  return {DType::kF32, std::move(shape), {bytes.begin(), bytes.end()}};
}
std::vector<float> floats_of(const Passed& passed) {
  return runner::probe_floats({passed.dtype, passed.shape, passed.bytes});
}

// Puts the features of all tiles into `state`: f32 [rows, width].
Status encode_images(LoadedPart& part, const PromptImages& images, PassedTensors& state) {
  if (images.pixels.empty()) return {};
  Shape tile = images.pixel_shape;
  const auto tiles = static_cast<size_t>(std::exchange(tile[0], 1));
  const size_t size = images.pixels.size() / tiles;
  std::vector<float> features;
  Shape shape;
  for (size_t t = 0; t < tiles; ++t) {
    PassedTensors of_tile;
    of_tile[std::string(kPixelValuesPort)] =
        passed_floats(tile, std::span(images.pixels).subspan(t * size, size));
    part.method().reset();
    FERRY_RETURN_IF_ERROR(part.run({}, 0, of_tile));
    const Passed& rows = of_tile.at(std::string(kImageFeaturesPort));
    const std::vector<float> values = floats_of(rows);
    features.insert(features.end(), values.begin(), values.end());
    shape = rows.shape;
  }
  shape = {static_cast<int64_t>(tiles) * shape[1], shape[2]};
  state[std::string(kImageFeaturesPort)] = passed_floats(std::move(shape), features);
  return {};
}

// Replaces the embeddings of placeholders by the features in `state`.
Status merge_images(const PromptImages& images, PassedTensors& state) {
  const auto found = state.find(std::string(kImageFeaturesPort));
  if (found == state.end()) return {};
  Passed& embeddings = state.at(std::string(kEmbeddingsPort));
  const auto width = static_cast<size_t>(embeddings.shape.back());
  const std::vector<float> features = floats_of(found->second);
  std::vector<float> values = floats_of(embeddings);
  size_t row = 0;
  for (const PromptImages::Run& run : images.runs) {
    const size_t first = static_cast<size_t>(run.first) * width;
    const size_t count = static_cast<size_t>(run.count) * width;
    if (first + count > values.size() || row + count > features.size()) {
      return fail(ErrorCode::kInternal, "placeholders of an image do not fit its features");
    }
    std::copy_n(features.begin() + static_cast<std::ptrdiff_t>(row), count,
                values.begin() + static_cast<std::ptrdiff_t>(first));
    row += count;
  }
  state[std::string(kAttentionEndPort)] = attention_end(images, 0, embeddings.shape[1]);
  embeddings = passed_floats(embeddings.shape, values);
  state.erase(found);
  return {};
}

}  // namespace

size_t Sequences::token_count() const {
  size_t count = 0;
  for (const std::vector<int64_t>& sequence : tokens) count += sequence.size();
  return count;
}

void Sequences::add(const Sequences& from, size_t index) {
  tokens.push_back(from.tokens[index]);
  if (!from.images.empty()) images.push_back(from.images[index]);
}

Sequences Sequences::beginnings(size_t count, size_t length) const {
  Sequences taken;
  count = std::min(count, size());
  for (size_t i = 0; i < count; ++i) {
    taken.add(*this, i * size() / count);
    if (!taken.images.empty() && !taken.images.back().empty()) continue;
    std::vector<int64_t>& sequence = taken.tokens.back();
    sequence.resize(std::min(sequence.size(), length));
  }
  return taken;
}

Status Sequences::run(LoadedPart& part, std::string_view role, size_t index,
                      PassedTensors& state) const {
  const bool has_images = !images.empty() && !images[index].empty();
  if (role == kVisionEncoderRole) {
    return has_images ? encode_images(part, images[index], state) : Status();
  }
  part.method().reset();
  FERRY_RETURN_IF_ERROR(part.run(tokens[index], 0, state));
  return has_images && role == kTokenEmbeddingRole ? merge_images(images[index], state) : Status();
}

}  // namespace ferry::proof
