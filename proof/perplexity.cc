#include "proof/perplexity.h"

#include <fmt/format.h>
#include <algorithm>
#include <cmath>

#include "proof/parity.h"
#include "runner/sampler.h"

namespace ferry::proof {
namespace {

Result<double> log_loss(std::span<const float> logits, int64_t token) {
  const double loss = log_sum_exp(logits) - static_cast<double>(logits[static_cast<size_t>(token)]);
  if (std::isfinite(loss)) return loss;
  if (loss > 0) return bad_input(fmt::format("token {} has probability 0", token));
  return bad_input("the logits are not finite");
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
  comparison.top1.add(runner::argmax(logits) == runner::argmax(other) ? 1 : 0);
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
