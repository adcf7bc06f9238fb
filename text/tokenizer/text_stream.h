// TextStream: decodes ids one at a time.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/result.h"
#include "text/tokenizer/tokenizer.h"

namespace ferry::text {

// The concatenated output equals that of decoding all ids at once. Exception: byte-fallback tokens
// that form valid text and are followed by invalid bytes, because the text was returned before.
class TextStream {
 public:
  // `tokenizer` must outlive this. Special tokens give no text.
  explicit TextStream(const Tokenizer& tokenizer) : tokenizer_(&tokenizer) {}

  // The text that `id` completes; empty while a character is incomplete.
  Result<std::string> push(int64_t id);
  // Returns the remaining text, with incomplete characters as U+FFFD.
  Result<std::string> finish();

 private:
  const Tokenizer* tokenizer_;
  // The last ids that gave text, as context, and those behind them that have not given any yet.
  std::vector<int64_t> window_;
  size_t context_ = 0;  // of window_
  std::string given_;   // text of the context
};

}  // namespace ferry::text
