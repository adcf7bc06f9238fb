#include "proof/quantization_error.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <string_view>

#include "proof/parity.h"

namespace ferry::proof {
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

// The scale of a group of zeros; no scale needs to be smaller.
constexpr double kLeastScale = 0x1p-23;

// Returns the largest sum of squared errors of values that are rounded to multiples of
// largest / last.
double most_noise(std::span<const float> values, double last) {
  double largest = 0;
  for (const float value : values) largest = std::max(largest, std::fabs(double{value}));
  const double half = std::max(largest / last, kLeastScale) / 2;
  return static_cast<double>(values.size()) * half * half;
}

double relative_error(const SquaredError& group) {
  if (group.noise == 0) return 0;
  return group.signal > 0 ? std::sqrt(group.noise / group.signal) : kBeyondAnyBound;
}

double last_code(const graph::QuantizationScheme& coding) { return coding.bits == 4 ? 7 : 127; }
// The factor allows for scales that are rounded to bf16.
constexpr double kCoarse = 1.02;

// The codes of a coding.
class CodeRange {
 public:
  explicit CodeRange(const graph::QuantizationScheme& coding)
      : last_(last_code(coding)), most_(kNearest) {
    // The official method chooses codes before it rounds the scale.
    if (coding.method == graph::ScaleMethod::kHqq && coding.scale_dtype == DType::kBF16) {
      most_ += (last_ + 1) * kBF16Rounding;
    }
  }
  // Whether no other code times `scale` is nearer to the value.
  bool is_nearest(double value, double stored, double scale) const {
    const double steps = (value - stored) / scale, code = stored / scale;
    if (steps > most_) return code > last_ - kNearest;
    return steps >= -most_ || code < -last_ - kNearest;
  }

 private:
  static constexpr double kNearest = 0.5 + 1e-4;  // quotients are f32 when codes are chosen
  static constexpr double kBF16Rounding = 1.0 / 256;
  double last_, most_;
};

}  // namespace

void SquaredError::add(const SquaredError& other) {
  signal += other.signal;
  noise += other.noise;
  values += other.values;
}

double SquaredError::sqnr_db() const {
  if (noise == 0) return kExactSqnrDb;
  if (signal == 0) return -kExactSqnrDb;
  return std::clamp(10 * std::log10(signal / noise), -kExactSqnrDb, kExactSqnrDb);
}

void QuantizationError::add_rows(const graph::QuantizationScheme& coding, int64_t first,
                                 int64_t columns, std::span<const float> values,
                                 std::span<const std::byte> codes,
                                 std::span<const std::byte> scales) {
  std::vector<float> stored(values.size());
  graph::dequantize_rows(coding, codes, scales, columns, stored);
  const int64_t groups = coding.groups(columns);
  const auto size = static_cast<size_t>(columns / groups);
  const auto scale_bytes = static_cast<size_t>(dtype_bytes(coding.scale_dtype));
  const CodeRange range(coding);
  for (size_t at = 0, index = 0; at < values.size(); at += size, ++index) {
    const std::span<const float> want = values.subspan(at, size);
    const std::span<const float> have = std::span<const float>(stored).subspan(at, size);
    const int64_t row = first + static_cast<int64_t>(index) / groups;
    const int64_t group = static_cast<int64_t>(index) % groups;
    const SquaredError part = error_of(want, have);
    sums.add(part);
    const double relative = relative_error(part);
    if (relative > worst.relative) worst = {row, group, relative};
    if (part.noise > kCoarse * most_noise(want, last_code(coding)) && coarse++ == 0) {
      coarse_row = row;
      coarse_group = group;
    }
    float scale = 0;
    to_f32(coding.scale_dtype, scales.data() + index * scale_bytes, &scale, 1);
    for (size_t i = 0; i < size; ++i) {
      if (range.is_nearest(want[i], have[i], scale) || misplaced++ > 0) continue;
      misplaced_row = row;
      misplaced_column = group * static_cast<int64_t>(size) + static_cast<int64_t>(i);
    }
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

}  // namespace ferry::proof
