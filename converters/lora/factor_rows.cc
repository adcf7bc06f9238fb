#include "converters/lora/factor_rows.h"

#include <algorithm>

namespace ferry::converters {

Status PaddedRows::values(const TensorSource& source, int64_t first, std::span<float> out) const {
  std::ranges::fill(out, 0.0F);
  const auto begin = static_cast<size_t>(first);
  const size_t count = out.size() / static_cast<size_t>(columns_);
  std::vector<float> stored;
  for (size_t i = 0; i < count && begin + i < rows_.size();) {
    // Rows that follow each other are read at once.
    size_t run = 1;
    while (i + run < count && begin + i + run < rows_.size() &&
           rows_[begin + i + run] == rows_[begin + i] + static_cast<int64_t>(run)) {
      ++run;
    }
    stored.resize(run * static_cast<size_t>(stored_));
    FERRY_RETURN_IF_ERROR(
        read_floats(source, entry_, static_cast<uint64_t>(rows_[begin + i] * stored_), stored));
    for (size_t k = 0; k < run; ++k) {
      std::copy_n(stored.begin() + static_cast<std::ptrdiff_t>(k) * stored_, stored_,
                  out.begin() + static_cast<std::ptrdiff_t>(i + k) * columns_);
    }
    i += run;
  }
  return {};
}

Status PaddedColumns::values(const TensorSource& source, int64_t first,
                             std::span<float> out) const {
  std::ranges::fill(out, 0.0F);
  const int64_t count = static_cast<int64_t>(out.size()) / padded_;
  const auto chosen =
      std::span(columns_).subspan(static_cast<size_t>(first), static_cast<size_t>(count));
  const auto [least, most] = std::ranges::minmax(chosen);
  std::vector<float> line(static_cast<size_t>(most - least + 1));
  for (int64_t k = 0; k < stored_; ++k) {
    FERRY_RETURN_IF_ERROR(
        read_floats(source, entry_, static_cast<uint64_t>(k * width_ + least), line));
    for (int64_t i = 0; i < count; ++i) {
      out[static_cast<size_t>(i * padded_ + k)] =
          line[static_cast<size_t>(chosen[static_cast<size_t>(i)] - least)];
    }
  }
  return {};
}

Status OneValue::values(const TensorSource& /*source*/, int64_t /*first*/,
                        std::span<float> out) const {
  std::ranges::fill(out, value_);
  return {};
}

}  // namespace ferry::converters
