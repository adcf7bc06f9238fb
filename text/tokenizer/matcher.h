// Matcher finds the matches of the pattern of a Split or a Replace. The pattern is a literal text,
// a regex, or one of the known word-splitting regexes, which are implemented directly.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "text/tokenizer/regex.h"
#include "text/tokenizer/tokenizer_json.h"

namespace ferry::text {

// Matchers are not thread-safe.
class Matcher {
 public:
  virtual ~Matcher() = default;
  // Appends the matches in `text` from left to right. They do not overlap and are not empty.
  virtual Status find_all(std::string_view text, std::vector<TextRange>& matches) const = 0;
};

// `where` begins error messages.
Result<std::unique_ptr<Matcher>> make_matcher(const StepPattern& pattern, const std::string& where);

}  // namespace ferry::text
