// Replace replaces every match of a pattern by a text. Normalizers and decoders have this step.
#pragma once

#include <algorithm>
#include <memory>
#include <string>

#include "core/result.h"
#include "text/tokenizer/matcher.h"
#include "text/tokenizer/tokenizer_json.h"

namespace ferry::text {

// Returns the largest size to which steps may grow a text of `size` bytes. Real tokenizers need
// less. The limit stops files whose every step doubles the text.
inline size_t growth_limit(size_t size) {
  return std::min(size * 32 + (size_t{1} << 16), size_t{1} << 30);
}

class Replace {
 public:
  // Reads the fields `pattern` and `content`.
  static Result<Replace> read(StepFields& fields);
  // kBadInput if the text would become larger than `most` bytes.
  Status apply(std::string& text, size_t most) const;
  bool removes() const { return content_.empty(); }

 private:
  std::unique_ptr<Matcher> matcher_;
  std::string content_, where_;
};

}  // namespace ferry::text
