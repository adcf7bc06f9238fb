// TextStream decodes ids one at a time.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/result.h"
#include "text/tokenizer/tokenizer.h"

namespace ferry::text {

// The concatenated output equals the text of all ids decoded at once. There is one exception:
// byte-fallback tokens that form valid text and are followed by invalid bytes, because that text
// was returned before.
class TextStream {
 public:
  // `tokenizer` must outlive this object. Special tokens give no text.
  explicit TextStream(const Tokenizer& tokenizer) : tokenizer_(&tokenizer) {}

  // Returns the text that `id` completes, which is empty while a character is incomplete.
  Result<std::string> push(int64_t id);
  // Returns the remaining text, with incomplete characters as U+FFFD.
  Result<std::string> finish();

 private:
  const Tokenizer* tokenizer_;
  // The last ids that gave text, as context, and the ids behind them that have not given text yet.
  std::vector<int64_t> window_;
  size_t context_ = 0;  // the number of ids of `window_` that are context
  std::string given_;   // the text of the context
};

}  // namespace ferry::text
