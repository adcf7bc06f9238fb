// Perplexity measures how well a model predicts given tokens, and how far two models are from each
// other there. All sums are f64, in the order in which tokens are added.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/result.h"
#include "core/thread_pool.h"
#include "packer/manifest.h"
#include "plan/conversion.h"
#include "runner/decoder.h"

namespace ferry::proof {

// The mean of samples, and its standard error as if they were independent: sqrt((mean of squares -
// square of the mean) / (count - 1)), or 0 for a single sample.
class MeanEstimate {
 public:
  void add(double sample);
  int64_t count() const { return count_; }
  double sum() const { return sum_; }
  double mean() const;
  double standard_error() const;

 private:
  // `squares_` sums squared distances from the running mean (Welford), which keeps precision.
  double sum_ = 0, mean_ = 0, squares_ = 0;
  int64_t count_ = 0;
};

// Negative log likelihoods (NLL) of tokens, in nats.
struct Perplexity {
  MeanEstimate nll;

  double value() const;           // exp(mean)
  double standard_error() const;  // standard error of value(), to first order
};

// Compares a model with another one on equal tokens; p is the other model's distribution, q the
// model's.
struct PerplexityComparison {
  Perplexity other;
  MeanEstimate nll_difference;  // the model's NLL minus the other's, by token
  MeanEstimate kl;              // KL(p || q), in nats
  MeanEstimate top1;  // 1 if both models have their largest logit at an equal token, else 0
  // The share of the other model's 5 likeliest tokens that are among the 5 of the model.
  MeanEstimate top5;
  // 1 if the token that followed is the likeliest one of exactly one of the models, else 0: what
  // "Accuracy is not all you need" (arXiv 2407.09141) calls a flip of an answer.
  MeanEstimate flips;
  std::vector<float> divergences;  // KL of every token, in order

  double kl_max() const;
  // Returns the least divergence that a share of the tokens does not exceed; 0 < share <= 1.
  double kl_quantile(double share) const;
  // Returns the standard error of kl_quantile(): half the distance between the quantiles that lie
  // one standard deviation of the share, sqrt(share (1 - share) / count), below and above.
  double kl_quantile_error(double share) const;
};

// The share of tokens whose largest divergence is reported and limited.
inline constexpr double kTailShare = 0.999;

// Limits of a comparison. Shares are 0 to 1.
struct QualityLimits {
  std::optional<double> kl_mean, kl_tail;  // largest mean and kTailShare quantile of KL, in nats
  std::optional<double> top1, top5;        // least shares of equal tokens
  std::optional<double> flips;             // largest share
  bool any() const { return kl_mean || kl_tail || top1 || top5 || flips; }
};

struct CheckedLimit {
  std::string name;  // "kl_mean", "kl_p999", "top1_agreement", "top5_agreement", "flips"
  double value = 0, limit = 0;
  bool within = false;
};
// Returns the limits that are set, each with the value of the comparison.
std::vector<CheckedLimit> check_limits(const PerplexityComparison& comparison,
                                       const QualityLimits& limits);

// Adds one prediction: logits of the vocabulary, and the token that followed. kBadInput, whose
// message names no position, for a token of probability 0, and if logits are not a distribution
// (NaN, +inf, all -inf).
Status add_prediction(std::span<const float> logits, int64_t token, Perplexity& to);
// Adds the predictions of two models. kBadInput also if the model gives probability 0 to a token to
// which the other model does not.
Status add_predictions(std::span<const float> logits, std::span<const float> other, int64_t token,
                       Perplexity& to, PerplexityComparison& comparison);

// Token windows split sequences that are longer than a context into calls whose predictions are
// counted. The protocol is the one that transformers describes for models of a fixed length
// (docs/perplexity.md).

// Tokens [begin, end) of a sequence; `begin` has position 0. The predictions of tokens from
// `counted` on count; there is at least one.
struct TokenWindow {
  size_t sequence = 0;
  int64_t begin = 0, end = 0, counted = 0;
  bool operator==(const TokenWindow&) const = default;
  int64_t tokens() const { return end - begin; }
};

struct WindowOptions {
  int64_t window = 0;  // tokens, at least 2
  int64_t stride = 0;  // 1 to `window`
};

// Windows begin at every multiple of the stride until one reaches the end of the sequence. Every
// token is counted in the first window that has it. The first token of a window is never counted,
// because nothing is before it. So each token of a sequence except the first counts once; with a
// stride of the whole window, the first token of every window does not count.
std::vector<TokenWindow> windows_of(std::span<const std::vector<int64_t>> sequences,
                                    const WindowOptions& options);

// -- runs of decoders, or of a checkpoint layer by layer, over token windows

// Tokens and the windows over them.
struct WindowedTokens {
  std::vector<std::vector<int64_t>> sequences;
  std::vector<TokenWindow> windows;

  std::span<const int64_t> tokens_of(const TokenWindow& window) const;
  int64_t counted() const;  // number of predictions in all windows
};

// Whether a call gives the logits of all of its tokens. Otherwise tokens run one by one.
bool gives_all_logits(const packer::Manifest& manifest);

// Runs a decoder over the windows. Rows must be requested in ascending order.
class WindowReader {
 public:
  // All arguments must outlive the reader. `name` begins messages.
  WindowReader(runner::Decoder& decoder, const packer::Manifest& manifest,
               const WindowedTokens& tokens, std::string name);

  // Returns logits [count, V] of the tokens of window `index` at positions [position, position +
  // count) in the window, which are valid until the next call. Tokens before `position` are run
  // first if they have not been.
  Result<std::span<const float>> rows(size_t index, int64_t position, int64_t count);
  const std::string& name() const { return name_; }

 private:
  Status run(std::span<const int64_t> tokens, bool keep);

  runner::Decoder& decoder_;
  const WindowedTokens& tokens_;
  const std::string name_;
  const size_t vocab_;
  const bool all_logits_;
  std::optional<size_t> window_;  // the window that the decoder is in
  std::vector<float> rows_;
};

// Splits the rows of a window into parts that fit into memory: calls visit(window, position, rows)
// for the logits that counted tokens are predicted from.
using VisitRows = std::function<Status(size_t window, int64_t position, int64_t rows)>;
Status for_each_part(const WindowedTokens& tokens, int64_t vocab_size, const VisitRows& visit);
// Returns the largest number of rows in such a part.
int64_t rows_of_part(int64_t vocab_size);

// Counts predictions; may be empty.
using Progress = std::function<void(uint64_t done, uint64_t total)>;

// kBadInput, with the position, if logits are not a distribution.
Result<Perplexity> measure_perplexity(WindowReader& reader, const WindowedTokens& tokens,
                                      int64_t vocab_size, const Progress& progress);

// Two models on equal windows.
struct ComparedPerplexity {
  Perplexity perplexity;
  PerplexityComparison comparison;
};

// Adds up the predictions of `reader`, in the order of for_each_part().
class PerplexityMeter {
 public:
  // All arguments must outlive the meter. Messages call the other model `other`.
  PerplexityMeter(WindowReader& reader, const WindowedTokens& tokens, int64_t vocab_size,
                  const Progress& progress, std::string other)
      : reader_(reader),
        tokens_(tokens),
        vocab_(static_cast<size_t>(vocab_size)),
        total_(static_cast<uint64_t>(tokens.counted())),
        progress_(progress),
        other_(std::move(other)) {}

  // Adds `count` rows of window `index` from `position` on.
  Status add(size_t index, int64_t position, int64_t count) {
    return add_rows(index, position, count, {});
  }
  // Adds rows together with the rows [count, V] of the other model, `other`.
  Status add_beside(size_t index, int64_t position, std::span<const float> other) {
    return add_rows(index, position, static_cast<int64_t>(other.size() / vocab_), other);
  }
  ComparedPerplexity result() && { return std::move(result_); }

 private:
  using Row = std::span<const float>;
  Status add_rows(size_t index, int64_t position, int64_t count, Row other);
  Status place(Status status, size_t index, int64_t position) const;

  WindowReader& reader_;
  const WindowedTokens& tokens_;
  const size_t vocab_;
  const uint64_t total_;
  const Progress& progress_;
  const std::string other_;
  ComparedPerplexity result_;
};

Result<ComparedPerplexity> compare_perplexity(WindowReader& reader, WindowReader& other,
                                              const WindowedTokens& tokens, int64_t vocab_size,
                                              const Progress& progress);

// Receives logits [rows, V] of a window from `position` on, in the order of for_each_part().
using WindowLogits =
    std::function<Status(size_t window, int64_t position, std::span<const float> rows)>;

// Executes a checkpoint's model in f32 for token windows, layer by layer. The weights of one layer
// and the hidden states of all windows are in memory. `conversion` must be planned by
// plan_f32_layers() for calls of proof::rows_of_part() tokens. Messages call the model `name`.
Status run_f32_windows(const plan::Conversion& conversion, const WindowedTokens& tokens,
                       const std::string& name, ThreadPool& pool, const WindowLogits& visit);

}  // namespace ferry::proof
