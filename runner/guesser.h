// A Guesser guesses the next tokens of a sequence. A decoder runs the guesses in one call and keeps
// those that are right, so they change its speed and not its output.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "core/result.h"

namespace ferry::runner {

class Guesser {
 public:
  virtual ~Guesser() = default;

  virtual void restart() = 0;
  // Adds tokens that the model has run.
  virtual void add(std::span<const int64_t> tokens) = 0;
  // Returns `token` and the guesses of the tokens after it, at most `limit` of them. Nothing is
  // added to the sequence. The result is valid until the next call.
  virtual Result<std::span<const int64_t>> guess(int64_t token, size_t limit) = 0;

  // Says how many of the last guesses were right. After wrong ones fewer tokens are guessed,
  // because each costs time.
  void learn(size_t guessed, size_t right) {
    if (guessed == 0) return;
    if (right == guessed) {
      count_ = std::min(most_, 2 * count_);
    } else if (2 * right < guessed) {
      count_ = std::max<size_t>(1, count_ / 2);
    }
  }

 protected:
  // Guesses at most `most` tokens at a time.
  explicit Guesser(int64_t most) : most_(static_cast<size_t>(most)), count_(most_) {}
  Guesser(const Guesser&) = default;
  Guesser& operator=(const Guesser&) = default;
  // Returns the number of tokens to guess now.
  size_t count(size_t limit) const { return std::min(count_, limit); }

 private:
  size_t most_, count_;
};

}  // namespace ferry::runner
