// Lookahead guesses the next tokens, so that one call of a method gives several of them. Each call
// computes, besides the current token, `window` diagonals of ngram - 1 guessed tokens that grow
// into n-grams, and up to `gcap` stored n-grams that begin with the current token, whose guesses
// are checked. A guess counts only if it is the token that is chosen anyway, so the output is that
// of decoding token by token. (Fu et al., "Break the Sequential Dependency of LLM Inference Using
// Lookahead Decoding", 2024.)
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "core/result.h"
#include "runner/decoder.h"
#include "runner/sampler.h"

namespace ferry::runner {

class Lookahead {
 public:
  // Serves calls of `ar` tokens. kUsage if the options are out of range, or need more than `ar`
  // tokens: (window + gcap) * (ngram - 1).
  static Result<Lookahead> make(const LookaheadOptions& options, int64_t ar, int64_t vocab);

  // The rows of every call in the form that AttentionMask takes.
  std::span<const int32_t> parents() const { return parents_; }
  std::span<const int32_t> offsets() const { return offsets_; }

  // Forgets all guesses. begin() must be called before the next call.
  void reset();
  bool has_begun() const { return begun_; }
  // Makes the first guesses: random ones of `tokens`, which must not be empty.
  void begin(std::span<const int64_t> tokens);

  // Returns the ids of a call that starts with `token`, one for each row of parents().
  std::span<const int32_t> ids(int64_t token);
  // The rows whose likeliest tokens continue the diagonals begin here. grow() takes these tokens in
  // order of the rows.
  size_t first_end_row() const { return index(levels_ - 1, 0); }
  size_t end_rows() const { return static_cast<size_t>(options_.window); }
  void grow(std::span<const int32_t> likeliest);

  // Returns the row of logits that gives the next token of the sequence. The first row always
  // exists, later ones only after a correct guess. Must be called before accept().
  std::optional<size_t> row() const { return row_; }
  // Says that `token` was chosen from row().
  void accept(int64_t token);
  // Returns the rows that belong to the sequence so far, which are those that row() has returned.
  std::span<const bool> selected() const { return {selected_.get(), parents_.size()}; }

 private:
  Lookahead(const LookaheadOptions& options, int64_t vocab);
  void lay_out();
  void insert(size_t column, int32_t key);

  size_t index(int64_t level, int64_t column) const {
    return static_cast<size_t>(level * options_.window + column);
  }
  size_t guess_index(int64_t guess, int64_t step) const {
    return static_cast<size_t>(levels_ * options_.window + guess * levels_ + step);
  }
  std::span<int32_t> gram(int64_t key, int64_t slot) {
    const int64_t at = (key * options_.gcap + slot) * levels_;
    return std::span(grams_).subspan(static_cast<size_t>(at), static_cast<size_t>(levels_));
  }

  LookaheadOptions options_;
  int64_t levels_ = 0;  // ngram - 1
  Random random_;
  bool begun_ = false;
  std::vector<int32_t> parents_, offsets_, ids_;
  std::vector<int32_t> branch_;  // [level][column]: the diagonals
  // n-grams by their first token: the tokens after it. The oldest n-gram is replaced first.
  std::vector<int32_t> grams_;         // [token][gcap][levels]
  std::vector<int32_t> count_, head_;  // by token
  // The state of the current call.
  std::unique_ptr<bool[]> selected_;  // by row
  std::unique_ptr<bool[]> active_;    // by guess
  std::optional<size_t> row_;
  int64_t step_ = 0;
};

}  // namespace ferry::runner
