#include "runner/rope_places.h"

#include <algorithm>

namespace ferry::runner {

void RopePlaces::add(const EmbeddingRows& rows) {
  if (rows.grid_frames > 1) prompt_tokens_ = std::max(prompt_tokens_, rows.prompt_tokens);
  if (!images_.empty() && rows.first < images_.back().end) return;  // known from before
  const int64_t start = in_prompt(rows.first)[0];
  const int64_t count = rows.grid_frames * rows.grid_rows * rows.grid_columns;
  const auto last = static_cast<float>(rows.grid_frames - 1) * rows.frame_step;
  images_.push_back({rows.first, rows.first + count, rows.grid_rows, rows.grid_columns,
                     rows.frame_step, start, start + std::max(rows.grid_rows, rows.grid_columns),
                     start + static_cast<int64_t>(last)});
}

void RopePlaces::join() {
  images_.clear();
  prompt_tokens_ = 0;
  for (const EmbeddingRows& rows : past_) add(rows);
  for (const EmbeddingRows& rows : set_) add(rows);
  if (prompt_tokens_ == 0) return;
  const std::array<int64_t, 3> end = in_prompt(prompt_tokens_ - 1);
  answer_ = *std::ranges::max_element(end) + 1;
  for (const Image& image : images_) answer_ = std::max(answer_, image.last + 1);
}

void RopePlaces::set(std::span<const EmbeddingRows> rows, int64_t position) {
  for (const EmbeddingRows& image : set_) {
    const bool known = !past_.empty() && image.first <= past_.back().first;
    if (image.first < position && !known) past_.push_back(image);
  }
  std::erase_if(past_, [&](const EmbeddingRows& image) { return image.first >= position; });
  set_.assign(rows.begin(), rows.end());
  for (EmbeddingRows& image : set_) image.values = {};
  join();
}

void RopePlaces::restart() {
  past_.clear();
  join();
}

std::array<int64_t, 3> RopePlaces::at(int64_t token) const {
  if (prompt_tokens_ == 0 || token < prompt_tokens_) return in_prompt(token);
  const int64_t place = answer_ + token - prompt_tokens_;
  return {place, place, place};
}

std::array<int64_t, 3> RopePlaces::in_prompt(int64_t token) const {
  const auto next = std::ranges::upper_bound(images_, token, {}, &Image::first);
  if (next == images_.begin()) return {token, token, token};
  const Image& image = *(next - 1);
  if (token >= image.end) {
    const int64_t place = image.behind + token - image.end;
    return {place, place, place};
  }
  const int64_t row = token - image.first, frame = row / (image.rows * image.columns);
  // The reference multiplies in f32, and rounds down.
  const auto time = static_cast<int64_t>(static_cast<float>(frame) * image.step);
  return {image.start + time, image.start + row / image.columns % image.rows,
          image.start + row % image.columns};
}

void RopePlaces::write(int64_t token, size_t count, int64_t* out) const {
  for (size_t i = 0; i < count; ++i) {
    const std::array<int64_t, 3> places = at(token + static_cast<int64_t>(i));
    for (size_t axis = 0; axis < 3; ++axis) out[axis * count + i] = places[axis];
  }
}

}  // namespace ferry::runner
