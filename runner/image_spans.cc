#include "runner/image_spans.h"

#include <fmt/format.h>

#include <algorithm>

namespace ferry::runner {

void ImageSpans::set(std::span<const EmbeddingRows> rows, int64_t width) {
  spans_.clear();
  are_prompts_ = !rows.empty() && rows.front().prompt_end > 0;
  for (const EmbeddingRows& run : rows) {
    if (run.is_sound) continue;
    if (run.prompt_end > 0) {
      spans_ = {{0, run.prompt_end}};
      return;
    }
    const int64_t end = run.first + std::ssize(run.values) / width;
    if (!spans_.empty() && spans_.back().end == run.first) {
      spans_.back().end = end;
    } else {
      spans_.push_back({run.first, end});
    }
  }
}

ImageSpans::Span ImageSpans::inside(int64_t position) const {
  const auto next = std::ranges::upper_bound(spans_, position, {}, &Span::end);
  const bool found = next != spans_.end() && next->first <= position;
  return found ? *next : Span{position, position};
}

int64_t ImageSpans::end_at(int64_t position) const {
  return std::max(inside(position).end, position + 1);
}

Result<size_t> ImageSpans::call_length(int64_t position, size_t count, size_t most) const {
  const size_t length = std::min(count, most);
  const Span cut = inside(position + static_cast<int64_t>(length));
  const int64_t end = std::min(cut.first, position + static_cast<int64_t>(length));
  const bool begins_inside = inside(position).first < position;
  if (end > position && !begins_inside) return static_cast<size_t>(end - position);
  const Span image = begins_inside ? inside(position) : cut;
  return fail(ErrorCode::kUsage,
              fmt::format("the {} {} at position {} attend to each other, and so must be tokens of "
                          "one call, which has room for {} here",
                          image.end - image.first,
                          are_prompts_ ? "tokens of the prompt" : "rows of the image", image.first,
                          length));
}

}  // namespace ferry::runner
