// TextStream: text from ids that come one at a time.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/result.h"
#include "text/tokenizer/tokenizer.h"

namespace ferry::text {

// What it gives, joined, is what decoding all ids at once gives, but for byte-fallback tokens that
// end a valid text and are continued by invalid bytes: those were given out before.
class TextStream {
 public:
  // `tokenizer` must outlive this. Special tokens give no text.
  explicit TextStream(const Tokenizer& tokenizer) : tokenizer_(&tokenizer) {}

  // The text that `id` completes; empty while a character is incomplete.
  Result<std::string> push(int64_t id);
  // What was held back, incomplete characters as U+FFFD.
  Result<std::string> finish();

 private:
  const Tokenizer* tokenizer_;
  // The last ids that gave text, as context, and those behind them that have not given any yet.
  std::vector<int64_t> window_;
  size_t context_ = 0;  // of window_
  std::string given_;   // text of the context
};

}  // namespace ferry::text
