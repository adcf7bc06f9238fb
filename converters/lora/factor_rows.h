// The values of factors in data files of adapters, made of the tensors that peft saves.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/derived_source.h"

namespace ferry::converters {

// Rows of a stored matrix in another order, padded with zeros on the right and below.
class PaddedRows final : public FloatDerivation {
 public:
  // Row i is row rows[i] of the entry, which has `stored` columns; rows behind them are zeros.
  PaddedRows(size_t entry, std::vector<int64_t> rows, int64_t stored, int64_t columns)
      : entry_(entry), rows_(std::move(rows)), stored_(stored), columns_(columns) {}
  Status values(const TensorSource& source, int64_t first, std::span<float> out) const override;

 private:
  size_t entry_;
  std::vector<int64_t> rows_;
  int64_t stored_, columns_;
};

// Columns of a stored matrix as rows, padded with zeros on the right.
class PaddedColumns final : public FloatDerivation {
 public:
  // Row i is column columns[i] of the entry, which has `stored` rows of `width` columns.
  PaddedColumns(size_t entry, std::vector<int64_t> columns, int64_t stored, int64_t width,
                int64_t padded)
      : entry_(entry),
        columns_(std::move(columns)),
        stored_(stored),
        width_(width),
        padded_(padded) {}
  Status values(const TensorSource& source, int64_t first, std::span<float> out) const override;

 private:
  size_t entry_;
  std::vector<int64_t> columns_;
  int64_t stored_, width_, padded_;
};

// One value.
class OneValue final : public FloatDerivation {
 public:
  explicit OneValue(float value) : value_(value) {}
  Status values(const TensorSource& source, int64_t first, std::span<float> out) const override;

 private:
  float value_;
};

}  // namespace ferry::converters
