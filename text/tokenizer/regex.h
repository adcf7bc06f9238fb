// Regex: a pattern of a tokenizer.json, compiled by PCRE2. The files are written for Oniguruma;
// only what both understand alike is accepted, and rewritten where they differ. Patterns and texts
// are untrusted: sizes, nesting and the work of a match are bounded.
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
  uint32_t begin, end;  // bytes
};

// Not thread-safe: matching uses memory of the object.
class Regex {
 public:
  // kUnsupported for what is not accepted, by name, and for patterns that match the empty string;
  // kBadInput for malformed ones. `where` begins the messages.
  static Result<Regex> compile(std::string_view pattern, const std::string& where);
  ~Regex();
  Regex(Regex&&) noexcept;
  Regex& operator=(Regex&&) noexcept;

  // Appends every match in `text`, from left to right, not overlapping. kBadInput when a match
  // would need too much work.
  Status find_all(std::string_view text, std::vector<TextRange>& matches) const;

 private:
  struct Impl;
  explicit Regex(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace ferry::text
