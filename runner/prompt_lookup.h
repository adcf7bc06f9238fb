// PromptLookup guesses the next tokens of a sequence: those that followed the same few tokens
// earlier in it. Texts repeat names, phrases and code, so guesses are often right, and they cost no
// model. (Saxena, "Prompt Lookup Decoding", 2023.)
#pragma once

#include <vector>

#include "runner/guesser.h"

namespace ferry::runner {

class PromptLookup final : public Guesser {
 public:
  explicit PromptLookup(int64_t most) : Guesser(most) {}

  void restart() override { tokens_.clear(); }
  void add(std::span<const int64_t> tokens) override {
    tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
  }
  Result<std::span<const int64_t>> guess(int64_t token, size_t limit) override;

 private:
  std::vector<int64_t> tokens_, call_;
};

}  // namespace ferry::runner
