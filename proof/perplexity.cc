#include "proof/perplexity.h"

#include <fmt/format.h>
#include <algorithm>
#include <cmath>

#include "proof/parity.h"

namespace ferry::proof {
namespace {

Result<double> log_loss(std::span<const float> logits, int64_t token) {
  const double loss = log_sum_exp(logits) - static_cast<double>(logits[static_cast<size_t>(token)]);
  if (std::isfinite(loss)) return loss;
  if (loss > 0) return bad_input(fmt::format("token {} has probability 0", token));
  return bad_input("the logits are not finite");
}

constexpr size_t kTop = 5;

// Returns the tokens with the largest logits, largest first; equal logits in the order of tokens.
std::vector<size_t> likeliest(std::span<const float> logits) {
  std::vector<size_t> top;
  for (size_t token = 0; token < logits.size(); ++token) {
    if (top.size() == kTop && logits[token] <= logits[top.back()]) continue;
    const auto at =
        std::ranges::find_if(top, [&](size_t other) { return logits[token] > logits[other]; });
    top.insert(at, token);
    if (top.size() > kTop) top.pop_back();
  }
  return top;
}

void compare_tops(std::span<const float> logits, std::span<const float> other, size_t token,
                  PerplexityComparison& comparison) {
  const std::vector<size_t> ours = likeliest(logits), theirs = likeliest(other);
  comparison.top1.add(ours.front() == theirs.front() ? 1 : 0);
  const auto common = std::ranges::count_if(
      theirs, [&](size_t candidate) { return std::ranges::count(ours, candidate) > 0; });
  comparison.top5.add(static_cast<double>(common) / static_cast<double>(theirs.size()));
  comparison.flips.add((ours.front() == token) != (theirs.front() == token) ? 1 : 0);
}

}  // namespace

void MeanEstimate::add(double sample) {
  count_ += 1;
  sum_ += sample;
  const double before = sample - mean_;
  mean_ += before / static_cast<double>(count_);
  squares_ += before * (sample - mean_);
}

double MeanEstimate::mean() const { return count_ == 0 ? 0 : sum_ / static_cast<double>(count_); }

double MeanEstimate::standard_error() const {
  if (count_ < 2) return 0;
  const auto n = static_cast<double>(count_);
  return std::sqrt(std::max(squares_, 0.0) / n / (n - 1));
}

double Perplexity::value() const { return std::exp(nll.mean()); }
double Perplexity::standard_error() const { return value() * nll.standard_error(); }

double PerplexityComparison::kl_max() const {
  return divergences.empty() ? 0 : *std::ranges::max_element(divergences);
}

double PerplexityComparison::kl_quantile(double share) const {
  if (divergences.empty()) return 0;
  std::vector<float> sorted = divergences;
  const auto n = static_cast<double>(sorted.size());
  const auto at = static_cast<size_t>(std::clamp(std::ceil(share * n) - 1, 0.0, n - 1));
  std::ranges::nth_element(sorted, sorted.begin() + static_cast<std::ptrdiff_t>(at));
  return sorted[at];
}

double PerplexityComparison::kl_quantile_error(double share) const {
  const auto n = static_cast<double>(divergences.size());
  if (n < 2) return 0;
  const double deviation = std::sqrt(share * (1 - share) / n);
  return (kl_quantile(std::min(share + deviation, 1.0)) - kl_quantile(share - deviation)) / 2;
}

std::vector<CheckedLimit> check_limits(const PerplexityComparison& comparison,
                                       const QualityLimits& limits) {
  std::vector<CheckedLimit> checked;
  const auto at_most = [&](const char* name, double value, const std::optional<double>& limit) {
    if (limit) checked.push_back({name, value, *limit, value <= *limit});
  };
  const auto at_least = [&](const char* name, double value, const std::optional<double>& limit) {
    if (limit) checked.push_back({name, value, *limit, value >= *limit});
  };
  at_most("kl_mean", comparison.kl.mean(), limits.kl_mean);
  at_most("kl_p999", comparison.kl_quantile(kTailShare), limits.kl_tail);
  at_least("top1_agreement", comparison.top1.mean(), limits.top1);
  at_least("top5_agreement", comparison.top5.mean(), limits.top5);
  at_most("flips", comparison.flips.mean(), limits.flips);
  return checked;
}

Status add_prediction(std::span<const float> logits, int64_t token, Perplexity& to) {
  to.nll.add(FERRY_TRY(log_loss(logits, token)));
  return {};
}

Status add_predictions(std::span<const float> logits, std::span<const float> other, int64_t token,
                       Perplexity& to, PerplexityComparison& comparison) {
  const double ours = FERRY_TRY(log_loss(logits, token));
  const double theirs = FERRY_TRY(log_loss(other, token));
  const double kl = kl_divergence(logits, other);
  if (!std::isfinite(kl)) {
    return bad_input("a token that the other model may choose has probability 0");
  }
  to.nll.add(ours);
  comparison.other.nll.add(theirs);
  comparison.nll_difference.add(ours - theirs);
  comparison.kl.add(kl);
  compare_tops(logits, other, static_cast<size_t>(token), comparison);
  comparison.divergences.push_back(static_cast<float>(kl));
  return {};
}

std::vector<TokenWindow> windows_of(std::span<const std::vector<int64_t>> sequences,
                                    const WindowOptions& options) {
  std::vector<TokenWindow> windows;
  for (size_t i = 0; i < sequences.size(); ++i) {
    const int64_t tokens = std::ssize(sequences[i]);
    int64_t seen = 0;
    for (int64_t begin = 0; seen < tokens; begin += options.stride) {
      const int64_t end = std::min(begin + options.window, tokens);
      const int64_t counted = std::max(seen, begin + 1);
      if (counted < end) windows.push_back({i, begin, end, counted});
      seen = end;
    }
  }
  return windows;
}

}  // namespace ferry::proof
