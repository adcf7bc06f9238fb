#include "graph/quantization/error.h"

#include <cmath>

namespace ferry::graph {
namespace {

// Sums of a fixed number of lanes: one order of additions, whatever the compiler makes of it.
constexpr size_t kLanes = 8;

struct Sums {
  double error[kLanes] = {}, squares[kLanes] = {};

  void add(size_t lane, float weight, float decoded) {
    const double off = static_cast<double>(weight) - static_cast<double>(decoded);
    error[lane] += off * off;
    squares[lane] += static_cast<double>(weight) * static_cast<double>(weight);
  }
};

double total(const double (&lanes)[kLanes]) {
  double sum = 0;
  for (const double lane : lanes) sum += lane;
  return sum;
}

double decibel(double squares, double error) { return 10 * std::log10(squares / error); }

}  // namespace

bool QuantizationError::Group::worse_than(const Group& other) const {
  return error * other.squares > other.error * squares;
}

void QuantizationError::add(std::span<const float> weights, std::span<const float> decoded,
                            size_t group) {
  for (size_t first = 0; first < weights.size(); first += group) {
    Sums sums;
    size_t i = first;
    for (; i + kLanes <= first + group; i += kLanes) {
      for (size_t l = 0; l < kLanes; ++l) sums.add(l, weights[i + l], decoded[i + l]);
    }
    for (size_t l = 0; i + l < first + group; ++l) sums.add(l, weights[i + l], decoded[i + l]);
    const Group now{total(sums.error), total(sums.squares), groups_++};
    error_ += now.error;
    squares_ += now.squares;
    if (now.worse_than(worst_)) worst_ = now;
  }
}

void QuantizationError::add(const QuantizationError& next) {
  Group worst = next.worst_;
  worst.index += groups_;
  if (worst.worse_than(worst_)) worst_ = worst;
  error_ += next.error_;
  squares_ += next.squares_;
  groups_ += next.groups_;
}

double QuantizationError::sqnr_db() const { return decibel(squares_, error_); }
double QuantizationError::worst_sqnr_db() const { return decibel(worst_.squares, worst_.error); }

}  // namespace ferry::graph
