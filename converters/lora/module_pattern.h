// A key of peft's rank_pattern or alpha_pattern: a regular expression for the end of a module's
// name. Source: peft, utils/other.py, get_pattern_key(), which takes Python's
// re.match(rf"(.*\.)?({key})$", name).
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "core/result.h"

namespace ferry::converters {

class ModulePattern {
 public:
  // kUnsupported, with `where` in front, for constructs that Python and PCRE2 read differently, and
  // for patterns that refer to what they have matched; kBadInput for a malformed pattern.
  static Result<ModulePattern> compile(std::string_view pattern, const std::string& where);

  // Whether the pattern matches the name, or what follows one of its dots, to the end. The work is
  // bounded: kUnsupported beyond it.
  Result<bool> ends(std::string_view module) const;

 private:
  ModulePattern(std::shared_ptr<const void> code, std::string where)
      : code_(std::move(code)), where_(std::move(where)) {}

  std::shared_ptr<const void> code_;  // pcre2_code
  std::string where_;
};

}  // namespace ferry::converters
