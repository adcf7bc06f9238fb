#include "runner/rope_places.h"

#include <algorithm>

namespace ferry::runner {

void RopePlaces::add(const EmbeddingRows& rows) {
  if (!images_.empty() && rows.first < images_.back().end) return;  // known from before
  const int64_t start = at(rows.first)[0];
  images_.push_back({rows.first, rows.first + rows.grid_rows * rows.grid_columns, rows.grid_columns,
                     start, start + std::max(rows.grid_rows, rows.grid_columns)});
}

void RopePlaces::join() {
  images_.clear();
  for (const EmbeddingRows& rows : past_) add(rows);
  for (const EmbeddingRows& rows : set_) add(rows);
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
  const auto next = std::ranges::upper_bound(images_, token, {}, &Image::first);
  if (next == images_.begin()) return {token, token, token};
  const Image& image = *(next - 1);
  if (token >= image.end) {
    const int64_t place = image.behind + token - image.end;
    return {place, place, place};
  }
  const int64_t row = token - image.first;
  return {image.start, image.start + row / image.columns, image.start + row % image.columns};
}

void RopePlaces::write(int64_t token, size_t count, int64_t* out) const {
  for (size_t i = 0; i < count; ++i) {
    const std::array<int64_t, 3> places = at(token + static_cast<int64_t>(i));
    for (size_t axis = 0; axis < 3; ++axis) out[axis * count + i] = places[axis];
  }
}

}  // namespace ferry::runner
