// Magnitudes of DoRA (arXiv 2402.09353), as peft computes them: an adapted matrix W' = W + scale *
// B A is multiplied by gains, g = magnitude / |W'|, one for each output. |W'| is the length of the
// output's row, or of its column in a matrix that is stored (inputs, outputs).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "core/derived_source.h"

namespace ferry::converters {

// Values [outputs, 1]: the gain of each output.
class Gains final : public FloatDerivation {
 public:
  // `adapted` is the entry of W', [rows, columns]. Output i has the magnitude order[i] of the entry
  // `magnitudes`; W' is `multiple` times the matrix that they were trained for.
  Gains(size_t adapted, size_t magnitudes, std::vector<int64_t> order, float multiple,
        bool by_column)
      : adapted_(adapted),
        magnitudes_(magnitudes),
        order_(std::move(order)),
        multiple_(multiple),
        by_column_(by_column) {}
  Status values(const TensorSource& source, int64_t first, std::span<float> out) const override;

 private:
  size_t adapted_, magnitudes_;
  std::vector<int64_t> order_;
  float multiple_;
  bool by_column_;
};

// The matrix of the entry `adapted` times its gains, an entry of Gains.
class GainedMatrix final : public FloatDerivation {
 public:
  GainedMatrix(size_t adapted, size_t gains, bool by_column)
      : adapted_(adapted), gains_(gains), by_column_(by_column) {}
  Status values(const TensorSource& source, int64_t first, std::span<float> out) const override;

 private:
  size_t adapted_, gains_;
  bool by_column_;
};

}  // namespace ferry::converters
