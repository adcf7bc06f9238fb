// Smoothing moves a factor from each column of a matrix's inputs to the matrix, so that no column
// of the inputs is much larger than the others: the inputs are rounded to 8 bits with one scale for
// all columns of a token (SmoothQuant, arXiv 2211.10438).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace ferry::calibration {

// One factor for each column. The product of a column's two factors is 1, but for rounding.
struct SmoothingFactors {
  std::vector<float> inputs, weights;
};

class ChannelMeans {
 public:
  explicit ChannelMeans(int64_t columns) : sums_(static_cast<size_t>(columns)) {}

  // Adds rows of inputs: [rows, columns], finite.
  void add(std::span<const float> inputs);

  // The factor of a column of the weights is the fourth root of the mean magnitude of the inputs
  // there, and the largest and the smallest factor of a matrix multiply to 1. Columns without
  // inputs count as a thousandth of the mean of all. All factors are 1 without inputs.
  SmoothingFactors factors() const;

 private:
  std::vector<double> sums_;  // of magnitudes
};

}  // namespace ferry::calibration
