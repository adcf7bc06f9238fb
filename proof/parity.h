// Metrics of the distance between computed and expected values. Plain functions over numbers.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "proof/noise.h"

namespace ferry::proof {

// Replaces infinity and NaN in reports, because JSON has neither. It exceeds every tolerance, so
// that a script that compares numbers never takes NaN for parity.
inline constexpr double kBeyondAnyBound = std::numeric_limits<double>::max();
// The signal-to-noise ratio reported for equal values; its negative is reported if a value is not
// finite.
inline constexpr double kExactSqnrDb = 999.0;

// Differences of computed values from the expected ones.
struct ValueMetrics {
  double max_abs = 0;  // largest |got - want|
  double mean_abs = 0;
  double rel_rms = 0;  // rms(got - want) / rms(want)
  double cosine = 1;
  double sqnr_db = kExactSqnrDb;  // 10 log10(sum want^2 / sum (got - want)^2)
  double scale = 0;               // largest |want|
  int64_t count = 0;              // values compared
  bool finite = true;             // false if any computed value was NaN or infinite
  // Measured noise of the tensor: its rms, and the largest ratio of a difference to it
  // (NoiseComparison::ratio()).
  double noise = 0;
  std::optional<double> noise_ratio = {};
};

// Metrics of logits and of their distributions over the vocabulary. If no row was added, `values`
// may describe another output, and there are no distributions.
struct LogitMetrics {
  ValueMetrics values;
  double kl_mean = 0;         // mean over rows of KL(softmax(want) || softmax(got)), in nats
  double kl_max = 0;          // KL of the row with the largest KL
  double top1_agreement = 1;  // share of rows whose largest logits have equal indices
  int64_t rows = 0;
};

// Sums differences in f64 in the given order, so that results are deterministic.
class ValueComparison {
 public:
  // `noise` may be nullptr; it must outlive the comparison.
  explicit ValueComparison(const TensorNoise* noise = nullptr);

  // `got` and `want` have equal lengths, and `want` is finite. With noise, they must be the whole
  // tensor.
  void add(std::span<const float> got, std::span<const float> want);
  // Adds a run of a row that begins at `channel`.
  void add_run(int64_t row, int64_t channel, std::span<const float> got,
               std::span<const float> want);
  ValueMetrics metrics() const;

 private:
  void add_values(std::span<const float> got, std::span<const float> want);
  const TensorNoise* noise_;
  std::optional<NoiseComparison> in_noise_;
  double max_abs_ = 0, sum_abs_ = 0, sum_error_ = 0, sum_got_ = 0, sum_want_ = 0, sum_both_ = 0;
  double scale_ = 0;
  int64_t count_ = 0;
  bool finite_ = true;
};

class LogitComparison {
 public:
  explicit LogitComparison(const TensorNoise* noise = nullptr) : values_(noise) {}

  // Adds row number `row` of `got.size()` logits.
  void add_row(int64_t row, std::span<const float> got, std::span<const float> want);
  LogitMetrics metrics() const;
  int64_t rows() const { return rows_; }

 private:
  ValueComparison values_;
  double kl_sum_ = 0, kl_max_ = 0;
  int64_t rows_ = 0, agreeing_ = 0;
};

// Returns the worse value of each field.
ValueMetrics worse(const ValueMetrics& a, const ValueMetrics& b);
LogitMetrics worse(const LogitMetrics& a, const LogitMetrics& b);

// Returns log(sum(exp(row))), computed without overflow. -inf is a token of probability 0.
double log_sum_exp(std::span<const float> row);
// Returns KL(softmax(want) || softmax(got)) in nats. The result is infinite if only `got` has -inf
// at a token, and NaN if a row is not a distribution.
double kl_divergence(std::span<const float> got, std::span<const float> want);

// Returns the largest minus the second largest value; infinite if there is only one.
double top_margin(std::span<const float> row);

}  // namespace ferry::proof
