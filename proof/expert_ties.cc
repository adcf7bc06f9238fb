#include "proof/expert_ties.h"

#include <algorithm>
#include <cmath>

namespace ferry::proof {
namespace {

// Two scores nearly tie if they differ by less than this many standard deviations of their error.
constexpr double kTieDeviations = 8;

double deviation(std::span<const float> values) {
  double sum = 0, squares = 0;
  for (float v : values) {
    sum += v;
    squares += static_cast<double>(v) * v;
  }
  const auto n = static_cast<double>(values.size());
  return std::sqrt(std::max(0.0, squares / n - (sum / n) * (sum / n)));
}

}  // namespace

std::vector<Exchange> near_ties(std::span<const float> scores, std::span<const int64_t> route,
                                double input_db) {
  const double limit = kTieDeviations * deviation(scores) * std::pow(10.0, -input_db / 20);
  std::vector<Exchange> all;
  for (size_t slot = 0; slot < route.size(); ++slot) {
    const double own = scores[static_cast<size_t>(route[slot])];
    for (int64_t e = 0; e < std::ssize(scores); ++e) {
      if (std::ranges::count(route, e) > 0) continue;
      const double margin = std::fabs(own - scores[static_cast<size_t>(e)]);
      if (margin <= limit && limit > 0) all.push_back({margin / limit, slot, e});
    }
  }
  std::ranges::sort(all, {}, &Exchange::margin);
  return all;
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::ranges::nth_element(values, middle);
  return *middle;
}

}  // namespace ferry::proof
