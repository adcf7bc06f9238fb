#include "runner/deepstack_rows.h"

#include <algorithm>
#include <utility>

namespace ferry::runner {

DeepstackRows::DeepstackRows(int64_t layers, int64_t most_tokens, int64_t width)
    : layers_(layers),
      width_(width),
      values_(static_cast<size_t>(layers * most_tokens * width), 0.0F) {}

std::span<const float> DeepstackRows::of_call(int64_t position, int64_t count) {
  const int64_t stride = (1 + layers_) * width_;
  if (std::exchange(filled_, false)) std::ranges::fill(values_, 0.0F);
  for (const EmbeddingRows& run : rows_) {
    const int64_t size = std::ssize(run.values) / stride;
    const int64_t begin = std::max(run.first, position);
    const int64_t end = std::min(run.first + size, position + count);
    for (int64_t at = begin; at < end; ++at) {
      filled_ = true;
      for (int64_t layer = 0; layer < layers_; ++layer) {
        const int64_t from = (at - run.first) * stride + (1 + layer) * width_;
        std::ranges::copy(
            run.values.subspan(static_cast<size_t>(from), static_cast<size_t>(width_)),
            values_.begin() + (layer * count + at - position) * width_);
      }
    }
  }
  return std::span(values_).first(static_cast<size_t>(layers_ * count * width_));
}

}  // namespace ferry::runner
