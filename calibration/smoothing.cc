#include "calibration/smoothing.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>

namespace ferry::calibration {
namespace {

constexpr double kLeastShare = 1e-3;  // of the mean magnitude of all columns

}  // namespace

void ChannelMeans::add(std::span<const float> inputs) {
  for (size_t at = 0; at < inputs.size(); at += sums_.size()) {
    for (size_t c = 0; c < sums_.size(); ++c) sums_[c] += std::fabs(double{inputs[at + c]});
  }
}

SmoothingFactors ChannelMeans::factors() const {
  const size_t columns = sums_.size();
  SmoothingFactors factors{std::vector<float>(columns, 1.0f), std::vector<float>(columns, 1.0f)};
  const double mean = std::accumulate(sums_.begin(), sums_.end(), 0.0) /
                      static_cast<double>(std::max<size_t>(columns, 1));
  if (!(mean > 0) || !std::isfinite(mean)) return factors;
  std::vector<double> roots(columns);
  for (size_t c = 0; c < columns; ++c) {
    // Square roots are rounded correctly, so that every processor gives the same factors.
    roots[c] = std::sqrt(std::sqrt(std::max(sums_[c] / mean, kLeastShare)));
  }
  const auto [least, most] = std::ranges::minmax(roots);
  const double middle = std::sqrt(least * most);
  for (size_t c = 0; c < columns; ++c) {
    factors.weights[c] = static_cast<float>(roots[c] / middle);
    factors.inputs[c] = 1.0f / factors.weights[c];
  }
  return factors;
}

}  // namespace ferry::calibration
