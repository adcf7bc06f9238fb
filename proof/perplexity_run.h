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
  int64_t counted() const;  // predictions in all windows
};

// Whether a call gives the logits of all of its tokens. Otherwise tokens run one by one.
bool gives_all_logits(const packer::Manifest& manifest);

// A decoder that goes through the windows. Rows are asked for in ascending order.
class WindowReader {
 public:
  // All must outlive the reader. `name` begins messages.
  WindowReader(runner::Decoder& decoder, const packer::Manifest& manifest,
               const WindowedTokens& tokens, std::string name);

  // Logits [count, V] after the tokens of window `index` at positions [position, position + count),
  // counted from the beginning of the window. Valid until the next call. Tokens before `position`
  // are run too where they have not been.
  Result<std::span<const float>> rows(size_t index, int64_t position, int64_t count);
  const std::string& name() const { return name_; }

 private:
  Status run(std::span<const int64_t> tokens, bool keep);

  runner::Decoder& decoder_;
  const WindowedTokens& tokens_;
  const std::string name_;
  const size_t vocab_;
  const bool all_logits_;
  std::optional<size_t> window_;  // that the decoder is in
  std::vector<float> rows_;
};

// The rows of a window in parts that fit into memory: calls visit(window, position, rows) for the
// logits that counted tokens are predicted from.
using VisitRows = std::function<Status(size_t window, int64_t position, int64_t rows)>;
Status for_each_part(const WindowedTokens& tokens, int64_t vocab_size, const VisitRows& visit);
// The rows of such a part at most.
int64_t rows_of_part(int64_t vocab_size);

using Progress = std::function<void(uint64_t done, uint64_t total)>;  // predictions; may be empty

// kBadInput, with the place, where logits are no distribution.
Result<Perplexity> measure_perplexity(WindowReader& reader, const WindowedTokens& tokens,
                                      int64_t vocab_size, const Progress& progress);

// A model and another one on the same windows.
struct ComparedPerplexity {
  Perplexity perplexity;
  PerplexityComparison comparison;
};

// Adds up the predictions of `reader`, in the order of for_each_part().
class PerplexityMeter {
 public:
  // All must outlive the meter. `other` is what messages call the other model.
  PerplexityMeter(WindowReader& reader, const WindowedTokens& tokens, int64_t vocab_size,
                  const Progress& progress, std::string other)
      : reader_(reader),
        tokens_(tokens),
        vocab_(static_cast<size_t>(vocab_size)),
        total_(static_cast<uint64_t>(tokens.counted())),
        progress_(progress),
        other_(std::move(other)) {}

  // `count` rows of window `index` from `position` on.
  Status add(size_t index, int64_t position, int64_t count) {
    return add_rows(index, position, count, {});
  }
  // `other`: rows [count, V] of the other model there.
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

// Logits [rows, V] of a window from `position` on, in the order of for_each_part().
using WindowLogits =
    std::function<Status(size_t window, int64_t position, std::span<const float> rows)>;

// Executes a checkpoint's model in f32 for token windows, layer by layer. One layer's weights are
// in memory at a time, and the hidden states of all windows. `conversion` is planned by
// plan_f32_layers() for calls of proof::rows_of_part() tokens. `name` is
// what messages call it.
Status run_f32_windows(const plan::Conversion& conversion, const WindowedTokens& tokens,
                       const std::string& name, ThreadPool& pool, const WindowLogits& visit);

}  // namespace ferry::proof
