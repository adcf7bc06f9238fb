#include "proof/sequences.h"

#include <algorithm>
#include <span>
#include <string>
#include <utility>

#include "core/program_interface.h"
#include "proof/image_inputs.h"
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

// Replaces the embeddings of placeholders by the features in `state`.
Status merge_images(const PromptImages& images, PassedTensors& state) {
  const auto found = state.find(std::string(kImageFeaturesPort));
  if (found == state.end()) return {};
  const std::vector<float> features = floats_of(found->second);
  state.erase(found);
  const int64_t count = state.at(std::string(kEmbeddingsPort)).shape[1];
  return merge_image_rows(images, images.rows_of(features), 0, count, state);
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
    if (!has_images || images[index].pixels.empty()) return {};
    const std::vector<float> features = FERRY_TRY(encode_images(part, images[index]));
    const int64_t rows = std::max<int64_t>(images[index].row_count(), 1);
    state[std::string(kImageFeaturesPort)] =
        passed_floats({rows, std::ssize(features) / rows}, features);
    return {};
  }
  part.method().reset();
  FERRY_RETURN_IF_ERROR(part.run(tokens[index], 0, state));
  return has_images && role == kTokenEmbeddingRole ? merge_images(images[index], state) : Status();
}

}  // namespace ferry::proof
