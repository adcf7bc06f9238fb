// QuantizationError: how far the values that codes and scales stand for are from the checkpoint's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "graph/quantization/scheme.h"

namespace ferry::proof {

// Sums over values, in the order in which they are added.
struct SquaredError {
  double signal = 0, noise = 0;  // sums of squares: of the values, of the differences
  int64_t values = 0;

  void add(const SquaredError& other);
  double sqnr_db() const;  // limited as proof::ValueMetrics::sqnr_db
};

// The group of the largest relative error: rms of the differences over rms of the values. A group
// of zeros counts only if it does not stand for zeros.
struct WorstGroup {
  int64_t row = 0, group = 0;  // the group in its row
  double relative = 0;         // proof::kBeyondAnyBound for a group of zeros
};

struct QuantizationError {
  std::string name;    // of the weight
  std::string scheme;  // as in recipes: "quantize i4 group 32 bf16 bf16_first low_first"
  int64_t layer = -1;  // -1: in none
  SquaredError sums;
  WorstGroup worst;
  // Values that another code of the same scale is nearer to, and the place of the first: there are
  // none where codes were chosen rightly, whatever the scales are.
  int64_t misplaced = 0, misplaced_row = 0, misplaced_column = 0;

  // Groups whose error is larger than that of any rounding to nearest by the plainest scale, the
  // one of the largest value: their scales are wrong. And the place of the first.
  int64_t coarse = 0, coarse_row = 0, coarse_group = 0;

  // Whole rows, from `first` on: values of the checkpoint, and the bytes of codes and scales.
  void add_rows(const graph::QuantizationScheme& coding, int64_t first, int64_t columns,
                std::span<const float> values, std::span<const std::byte> codes,
                std::span<const std::byte> scales);
};

// The layer that "layers.N." at the beginning of a name says; -1 without.
int64_t layer_of(const std::string& weight);

// Sums of all weights of a layer, by layer.
std::map<int64_t, SquaredError> by_layer(const std::vector<QuantizationError>& errors);

}  // namespace ferry::proof
