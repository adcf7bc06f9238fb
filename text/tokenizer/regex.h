// Regex is a pattern of a tokenizer.json, compiled by PCRE2. Patterns are written for Oniguruma.
// Only constructs that both libraries have are supported, and they are rewritten where the syntax
// differs. Patterns and texts are untrusted: sizes, nesting and the work of a match are bounded.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"

namespace ferry::text {

struct TextRange {
  uint32_t begin, end;  // offsets in bytes
};

// Regex is not thread-safe, because matching uses memory of the object.
class Regex {
 public:
  // kUnsupported for unsupported constructs, by name, and for patterns that match the empty string.
  // kBadInput for malformed patterns. `where` begins error messages.
  static Result<Regex> compile(std::string_view pattern, const std::string& where);
  ~Regex();
  Regex(Regex&&) noexcept;
  Regex& operator=(Regex&&) noexcept;

  // Appends the matches in `text` from left to right. They do not overlap. kBadInput if a match
  // would need too much work.
  Status find_all(std::string_view text, std::vector<TextRange>& matches) const;

 private:
  struct Impl;
  explicit Regex(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace ferry::text
