// Runs decoders, or a checkpoint layer by layer, over token windows, and counts their predictions.
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
#include "proof/perplexity.h"
#include "runner/decoder.h"

namespace ferry::proof {

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
