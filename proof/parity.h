// Metrics: how far computed values are from expected ones. Plain functions over numbers.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace ferry::proof {

// Replaces infinity and NaN in reports, because JSON has neither. It exceeds every tolerance, so
// that a script that compares numbers never takes NaN for parity.
inline constexpr double kBeyondAnyBound = std::numeric_limits<double>::max();
// The signal-to-noise ratio reported for equal values; its negative where a value is not finite.
inline constexpr double kExactSqnrDb = 999.0;

// Differences of some computed values from the expected ones.
struct ValueMetrics {
  double max_abs = 0;  // largest |got - want|
  double mean_abs = 0;
  double rel_rms = 0;  // rms(got - want) / rms(want)
  double cosine = 1;
  double sqnr_db = kExactSqnrDb;  // 10 log10(sum want^2 / sum (got - want)^2)
  double scale = 0;               // largest |want|
  int64_t count = 0;              // values compared
  bool finite = true;             // false if any computed value was NaN or infinite
};

// The same for logits, with metrics of distributions over a vocabulary. Without rows `values` may
// be of another output, and the distributions are none.
struct LogitMetrics {
  ValueMetrics values;
  double kl_mean = 0;         // mean over rows of KL(softmax(want) || softmax(got)), in nats
  double kl_max = 0;          // of the row that has the largest
  double top1_agreement = 1;  // rows whose largest logit is at the same index
  int64_t rows = 0;
};

// Sums differences in f64 in the order given: deterministic.
class ValueComparison {
 public:
  // `got` and `want` have equal lengths; `want` is finite.
  void add(std::span<const float> got, std::span<const float> want);
  ValueMetrics metrics() const;

 private:
  double max_abs_ = 0, sum_abs_ = 0, sum_error_ = 0, sum_got_ = 0, sum_want_ = 0, sum_both_ = 0;
  double scale_ = 0;
  int64_t count_ = 0;
  bool finite_ = true;
};

class LogitComparison {
 public:
  // One row of `got.size()` logits.
  void add_row(std::span<const float> got, std::span<const float> want);
  LogitMetrics metrics() const;
  int64_t rows() const { return rows_; }

 private:
  ValueComparison values_;
  double kl_sum_ = 0, kl_max_ = 0;
  int64_t rows_ = 0, agreeing_ = 0;
};

// The worse of the two in every field.
ValueMetrics worse(const ValueMetrics& a, const ValueMetrics& b);
LogitMetrics worse(const LogitMetrics& a, const LogitMetrics& b);

// log(sum(exp(row))), stable. -inf is a token of probability 0.
double log_sum_exp(std::span<const float> row);
// KL(softmax(want) || softmax(got)) in nats. Infinite where `got` alone has -inf at a token; NaN
// where a row is no distribution.
double kl_divergence(std::span<const float> got, std::span<const float> want);

// Largest minus second largest value; infinite for a single one.
double top_margin(std::span<const float> row);

}  // namespace ferry::proof
