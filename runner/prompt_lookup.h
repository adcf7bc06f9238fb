// PromptLookup guesses the next tokens of a sequence: those that followed the same few tokens
// earlier in it. Texts repeat names, phrases and code, so guesses are often right, and they cost no
// model. (Saxena, "Prompt Lookup Decoding", 2023.)
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace ferry::runner {

class PromptLookup {
 public:
  // Guesses at most `most` tokens at a time.
  explicit PromptLookup(int64_t most) : most_(static_cast<size_t>(most)), count_(most_) {}

  void restart() { tokens_.clear(); }
  // Adds tokens that the model has run.
  void add(std::span<const int64_t> tokens) {
    tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
  }
  // Returns `token` and the guesses of the tokens after it, at most `limit` of them. Nothing is
  // added to the sequence. The result is valid until the next call.
  std::span<const int64_t> guess(int64_t token, size_t limit);
  // Says how many of the last guesses were right. After wrong ones fewer tokens are guessed,
  // because each costs time.
  void learn(size_t guessed, size_t right);

 private:
  size_t most_, count_;
  std::vector<int64_t> tokens_, call_;
};

}  // namespace ferry::runner
