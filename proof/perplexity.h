// Perplexity: how well a model predicts given tokens, and how far two models are from each other
// there. Plain functions over numbers; all sums are f64, in the order in which tokens are added.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/result.h"

namespace ferry::proof {

// The mean of samples, and its standard error as if they were independent:
// sqrt((mean of squares - square of the mean) / (count - 1)), 0 for a single one.
class MeanEstimate {
 public:
  void add(double sample);
  int64_t count() const { return count_; }
  double sum() const { return sum_; }
  double mean() const;
  double standard_error() const;

 private:
  // The squares are those of distances from the running mean (Welford), which keeps their digits.
  double sum_ = 0, mean_ = 0, squares_ = 0;
  int64_t count_ = 0;
};

// Negative log likelihoods (NLL) of tokens, in nats.
struct Perplexity {
  MeanEstimate nll;

  double value() const;           // exp(mean)
  double standard_error() const;  // of value(), to first order
};

// A model beside another on the same tokens; p is the other's distribution, q the model's.
struct PerplexityComparison {
  Perplexity other;
  MeanEstimate nll_difference;  // the model's less the other's, token by token
  MeanEstimate kl;              // KL(p || q), in nats
  MeanEstimate top1;            // 1 where both have their largest logit at the same token, else 0
  std::vector<float> divergences;  // KL of every token, in order

  double kl_max() const;
  // The least divergence that a share of the tokens does not exceed; 0 < share <= 1.
  double kl_quantile(double share) const;
};

// Adds one prediction: logits of the vocabulary, and the token that followed. kBadInput, without a
// place, for a token of probability 0, and where logits are no distribution (NaN, +inf, all -inf).
Status add_prediction(std::span<const float> logits, int64_t token, Perplexity& to);
// Adds the predictions of two models. kBadInput too where the model gives a token no probability
// that the other does.
Status add_predictions(std::span<const float> logits, std::span<const float> other, int64_t token,
                       Perplexity& to, PerplexityComparison& comparison);

// Token windows say how sequences that are longer than a context are given to a model whose
// predictions are counted. The protocol is the one that transformers describes for models of a
// fixed length (docs/perplexity.md).

// Tokens [begin, end) of a sequence, the first of them at position 0. Tokens from `counted` on are
// those whose predictions count; there is one at least.
struct TokenWindow {
  size_t sequence = 0;
  int64_t begin = 0, end = 0, counted = 0;
  bool operator==(const TokenWindow&) const = default;
  int64_t tokens() const { return end - begin; }
};

struct WindowOptions {
  int64_t window = 0;  // tokens, 2 at least
  int64_t stride = 0;  // 1 to `window`
};

// Windows begin at every multiple of the stride until one reaches the end of the sequence. Every
// token is counted in the first window that has it. The first token of a window is never counted,
// because nothing is before it: so each token of a sequence but the first counts once, and with a
// stride of the whole window the first token of every window does not count.
std::vector<TokenWindow> windows_of(std::span<const std::vector<int64_t>> sequences,
                                    const WindowOptions& options);

}  // namespace ferry::proof
