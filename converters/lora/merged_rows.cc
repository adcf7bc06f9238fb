#include "converters/lora/merged_rows.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace ferry::converters {
namespace {

void add(float factor, std::span<const float> row, std::span<float> sums) {
  for (size_t i = 0; i < sums.size(); ++i) sums[i] += factor * row[i];
}

}  // namespace

MergedRows::MergedRows(graph::Recipe base, size_t a, size_t b, int64_t rank, float scale,
                       bool transposed)
    : base_(std::move(base)), a_(a), b_(b), rank_(rank), scale_(scale), transposed_(transposed) {
  base_.cast(DType::kF32);
}

Status MergedRows::values(const TensorSource& source, int64_t first, std::span<float> out) const {
  const int64_t columns = base_.output().shape[1];
  const int64_t count = static_cast<int64_t>(out.size()) / columns;
  const auto offset = static_cast<uint64_t>(first * columns) * sizeof(float);
  FERRY_RETURN_IF_ERROR(graph::materialize(base_, source, offset, std::as_writable_bytes(out)));
  // `left` (count, rank) times `right` (rank, columns).
  std::vector<float> left(static_cast<size_t>(count * rank_));
  std::vector<float> right(static_cast<size_t>(columns * rank_));
  FERRY_RETURN_IF_ERROR(transposed_ ? read_transposed(source, first, count, left, right)
                                    : read_plain(source, first, left, right));
  std::vector<float> sums(static_cast<size_t>(columns));
  for (int64_t row = 0; row < count; ++row) {
    std::ranges::fill(sums, 0.0f);
    for (int64_t k = 0; k < rank_; ++k) {
      add(left[static_cast<size_t>(row * rank_ + k)],
          std::span(right).subspan(static_cast<size_t>(k * columns), sums.size()), sums);
    }
    const auto values = out.subspan(static_cast<size_t>(row * columns), sums.size());
    for (size_t i = 0; i < sums.size(); ++i) values[i] += sums[i] * scale_;
  }
  return {};
}

Status MergedRows::read_plain(const TensorSource& source, int64_t first, std::span<float> left,
                              std::span<float> right) const {
  FERRY_RETURN_IF_ERROR(read_floats(source, b_, static_cast<uint64_t>(first * rank_), left));
  return read_floats(source, a_, 0, right);
}

Status MergedRows::read_transposed(const TensorSource& source, int64_t first, int64_t count,
                                   std::span<float> left, std::span<float> right) const {
  const int64_t all = base_.output().shape[0], columns = base_.output().shape[1];
  std::vector<float> line(static_cast<size_t>(count));
  for (int64_t k = 0; k < rank_; ++k) {
    FERRY_RETURN_IF_ERROR(read_floats(source, a_, static_cast<uint64_t>(k * all + first), line));
    for (size_t row = 0; row < line.size(); ++row) {
      left[row * static_cast<size_t>(rank_) + static_cast<size_t>(k)] = line[row];
    }
  }
  std::vector<float> b(right.size());
  FERRY_RETURN_IF_ERROR(read_floats(source, b_, 0, b));
  for (int64_t column = 0; column < columns; ++column) {
    for (int64_t k = 0; k < rank_; ++k) {
      right[static_cast<size_t>(k * columns + column)] = b[static_cast<size_t>(column * rank_ + k)];
    }
  }
  return {};
}

}  // namespace ferry::converters
