#include "pipeline/quantization_error.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <string_view>

#include "proof/parity.h"

namespace ferry::pipeline {
namespace {

SquaredError error_of(std::span<const float> values, std::span<const float> stored) {
  SquaredError sums;
  for (size_t i = 0; i < values.size(); ++i) {
    const double value = values[i], error = double{stored[i]} - value;
    sums.signal += value * value;
    sums.noise += error * error;
  }
  sums.values = std::ssize(values);
  return sums;
}

double relative_error(const SquaredError& group) {
  if (group.noise == 0) return 0;
  return group.signal > 0 ? std::sqrt(group.noise / group.signal) : proof::kBeyondAnyBound;
}

}  // namespace

void SquaredError::add(const SquaredError& other) {
  signal += other.signal;
  noise += other.noise;
  values += other.values;
}

double SquaredError::sqnr_db() const {
  if (noise == 0) return proof::kExactSqnrDb;
  if (signal == 0) return -proof::kExactSqnrDb;
  return std::clamp(10 * std::log10(signal / noise), -proof::kExactSqnrDb, proof::kExactSqnrDb);
}

void QuantizationError::add_rows(int64_t first, int64_t columns, int64_t group,
                                 std::span<const float> values, std::span<const float> stored) {
  const int64_t groups = columns / group;
  const auto size = static_cast<size_t>(group);
  for (size_t at = 0, index = 0; at < values.size(); at += size, ++index) {
    const SquaredError part = error_of(values.subspan(at, size), stored.subspan(at, size));
    sums.add(part);
    const double relative = relative_error(part);
    if (relative <= worst.relative) continue;
    const auto i = static_cast<int64_t>(index);
    worst = {first + i / groups, i % groups, relative};
  }
}

int64_t layer_of(const std::string& weight) {
  constexpr std::string_view kLayers = "layers.";
  if (!weight.starts_with(kLayers)) return -1;
  int64_t layer = -1;
  const char* end = weight.data() + weight.size();
  const auto [rest, error] = std::from_chars(weight.data() + kLayers.size(), end, layer);
  return error == std::errc() && rest != end && *rest == '.' ? layer : -1;
}

std::map<int64_t, SquaredError> by_layer(const std::vector<QuantizationError>& errors) {
  std::map<int64_t, SquaredError> layers;
  for (const QuantizationError& error : errors) layers[error.layer].add(error.sums);
  return layers;
}

}  // namespace ferry::pipeline
