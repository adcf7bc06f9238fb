#include "proof/parity.h"

#include <algorithm>
#include <cmath>

#include "runner/sampler.h"

namespace ferry::proof {
namespace {

double sqnr_db(double signal, double noise) {
  if (noise == 0) return kExactSqnrDb;
  if (signal == 0) return -kExactSqnrDb;
  return std::clamp(10 * std::log10(signal / noise), -kExactSqnrDb, kExactSqnrDb);
}

std::optional<double> worse_ratio(std::optional<double> a, std::optional<double> b) {
  if (!a || !b) return a ? a : b;
  return std::max(*a, *b);
}

}  // namespace

double log_sum_exp(std::span<const float> row) {
  const double largest = *std::max_element(row.begin(), row.end());
  double sum = 0;
  for (float v : row) sum += std::exp(v - largest);
  return largest + std::log(sum);
}

double kl_divergence(std::span<const float> got, std::span<const float> want) {
  const double got_norm = log_sum_exp(got);
  const double want_norm = log_sum_exp(want);
  double sum = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    const double log_p = want[i] - want_norm;
    const double p = std::exp(log_p);
    // Tokens of probability 0 count nothing, whatever the other logit is.
    if (p > 0) sum += p * (log_p - (got[i] - got_norm));
  }
  return sum < 0 ? 0 : sum;
}

ValueComparison::ValueComparison(const TensorNoise* noise) : noise_(noise) {
  if (noise != nullptr) in_noise_.emplace(*noise);
}

void ValueComparison::add(std::span<const float> got, std::span<const float> want) {
  if (in_noise_) in_noise_->add(got, want);
  add_values(got, want);
}

void ValueComparison::add_run(int64_t row, int64_t channel, std::span<const float> got,
                              std::span<const float> want) {
  if (in_noise_) in_noise_->add(row, channel, got, want);
  add_values(got, want);
}

void ValueComparison::add_values(std::span<const float> got, std::span<const float> want) {
  for (size_t i = 0; i < want.size(); ++i) {
    const double g = got[i];
    const double w = want[i];
    if (!std::isfinite(g)) {
      finite_ = false;
      continue;
    }
    const double error = std::fabs(g - w);
    max_abs_ = std::max(max_abs_, error);
    scale_ = std::max(scale_, std::fabs(w));
    sum_abs_ += error;
    sum_error_ += error * error;
    sum_got_ += g * g;
    sum_want_ += w * w;
    sum_both_ += g * w;
  }
  count_ += static_cast<int64_t>(want.size());
}

ValueMetrics ValueComparison::metrics() const {
  ValueMetrics m;
  m.count = count_;
  m.scale = scale_;
  m.finite = finite_;
  if (in_noise_) {
    m.noise = noise_->rms;
    m.noise_ratio = std::min(in_noise_->ratio(), kBeyondAnyBound);
  }
  if (!finite_) {
    m.max_abs = m.mean_abs = m.rel_rms = kBeyondAnyBound;
    m.cosine = -1;
    m.sqnr_db = -kExactSqnrDb;
    return m;
  }
  if (count_ == 0) return m;
  m.max_abs = max_abs_;
  m.mean_abs = sum_abs_ / static_cast<double>(count_);
  m.sqnr_db = sqnr_db(sum_want_, sum_error_);
  if (sum_error_ == 0) return m;
  m.rel_rms = sum_want_ > 0 ? std::sqrt(sum_error_ / sum_want_) : kBeyondAnyBound;
  const double norms = std::sqrt(sum_got_) * std::sqrt(sum_want_);
  m.cosine = norms > 0 ? std::clamp(sum_both_ / norms, -1.0, 1.0) : 0.0;
  return m;
}

void LogitComparison::add_row(int64_t row, std::span<const float> got,
                              std::span<const float> want) {
  values_.add_run(row, 0, got, want);
  rows_ += 1;
  if (!std::ranges::all_of(got, [](float v) { return std::isfinite(v); })) return;
  agreeing_ += runner::argmax(got) == runner::argmax(want) ? 1 : 0;
  const double kl = kl_divergence(got, want);
  kl_sum_ += kl;
  kl_max_ = std::max(kl_max_, kl);
}

LogitMetrics LogitComparison::metrics() const {
  LogitMetrics m;
  m.values = values_.metrics();
  m.rows = rows_;
  if (rows_ == 0) return m;
  m.top1_agreement = static_cast<double>(agreeing_) / static_cast<double>(rows_);
  m.kl_mean = m.values.finite ? kl_sum_ / static_cast<double>(rows_) : kBeyondAnyBound;
  m.kl_max = m.values.finite ? kl_max_ : kBeyondAnyBound;
  return m;
}

ValueMetrics worse(const ValueMetrics& a, const ValueMetrics& b) {
  return {.max_abs = std::max(a.max_abs, b.max_abs),
          .mean_abs = std::max(a.mean_abs, b.mean_abs),
          .rel_rms = std::max(a.rel_rms, b.rel_rms),
          .cosine = std::min(a.cosine, b.cosine),
          .sqnr_db = std::min(a.sqnr_db, b.sqnr_db),
          .scale = std::max(a.scale, b.scale),
          .count = a.count + b.count,
          .finite = a.finite && b.finite,
          .noise = std::max(a.noise, b.noise),
          .noise_ratio = worse_ratio(a.noise_ratio, b.noise_ratio)};
}

LogitMetrics worse(const LogitMetrics& a, const LogitMetrics& b) {
  return {.values = worse(a.values, b.values),
          .kl_mean = std::max(a.kl_mean, b.kl_mean),
          .kl_max = std::max(a.kl_max, b.kl_max),
          .top1_agreement = std::min(a.top1_agreement, b.top1_agreement),
          .rows = a.rows + b.rows};
}

double top_margin(std::span<const float> row) {
  double first = -std::numeric_limits<double>::infinity();
  double second = first;
  for (float v : row) {
    if (v > first) {
      second = first;
      first = v;
    } else if (v > second) {
      second = v;
    }
  }
  return first - second;
}

}  // namespace ferry::proof
