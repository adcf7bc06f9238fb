#include "converters/lora/magnitudes.h"

#include <algorithm>
#include <cmath>

namespace ferry::converters {
namespace {

constexpr size_t kTileValues = size_t{1} << 18;

// Returns the lengths of rows [first, first + count) of a matrix.
Result<std::vector<double>> row_lengths(const TensorSource& source, size_t entry, int64_t first,
                                        size_t count) {
  std::vector<double> lengths;
  std::vector<float> row(static_cast<size_t>(source.entries()[entry].shape[1]));
  for (size_t i = 0; i < count; ++i) {
    const auto at = (static_cast<size_t>(first) + i) * row.size();
    FERRY_RETURN_IF_ERROR(read_floats(source, entry, at, row));
    double sum = 0;
    for (const float value : row) sum += static_cast<double>(value) * value;
    lengths.push_back(std::sqrt(sum));
  }
  return lengths;
}

// Returns the lengths of all columns of a matrix.
Result<std::vector<double>> column_lengths(const TensorSource& source, size_t entry) {
  const Shape& shape = source.entries()[entry].shape;
  const auto rows = static_cast<size_t>(shape[0]), columns = static_cast<size_t>(shape[1]);
  const size_t most = std::max<size_t>(1, kTileValues / columns);
  std::vector<double> sums(columns);
  std::vector<float> tile;
  for (size_t row = 0; row < rows; row += most) {
    tile.resize(std::min(most, rows - row) * columns);
    FERRY_RETURN_IF_ERROR(read_floats(source, entry, row * columns, tile));
    for (size_t i = 0; i < tile.size(); ++i) {
      sums[i % columns] += static_cast<double>(tile[i]) * tile[i];
    }
  }
  for (double& sum : sums) sum = std::sqrt(sum);
  return sums;
}

}  // namespace

Status Gains::values(const TensorSource& source, int64_t first, std::span<float> out) const {
  std::vector<double> lengths;
  if (by_column_) {
    const std::vector<double> all = FERRY_TRY(column_lengths(source, adapted_));
    const auto begin = all.begin() + first;
    lengths.assign(begin, begin + std::ssize(out));
  } else {
    lengths = FERRY_TRY(row_lengths(source, adapted_, first, out.size()));
  }
  std::vector<float> magnitudes(order_.size());
  FERRY_RETURN_IF_ERROR(read_floats(source, magnitudes_, 0, magnitudes));
  for (size_t i = 0; i < out.size(); ++i) {
    const int64_t at = order_[static_cast<size_t>(first) + i];
    out[i] = static_cast<float>(magnitudes[static_cast<size_t>(at)] *
                                std::abs(static_cast<double>(multiple_)) / lengths[i]);
  }
  return {};
}

Status GainedMatrix::values(const TensorSource& source, int64_t first, std::span<float> out) const {
  const auto columns = static_cast<size_t>(source.entries()[adapted_].shape[1]);
  const size_t begin = static_cast<size_t>(first) * columns;
  FERRY_RETURN_IF_ERROR(read_floats(source, adapted_, begin, out));
  std::vector<float> gains(by_column_ ? columns : out.size() / columns);
  FERRY_RETURN_IF_ERROR(
      read_floats(source, gains_, by_column_ ? 0 : static_cast<uint64_t>(first), gains));
  for (size_t i = 0; i < out.size(); ++i) out[i] *= gains[by_column_ ? i % columns : i / columns];
  return {};
}

}  // namespace ferry::converters
