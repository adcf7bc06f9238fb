// to_pcre2() translates a regex from Oniguruma (Ruby syntax, Unicode) to PCRE2.
#pragma once

#include <string>
#include <string_view>

#include "core/result.h"

namespace ferry::text {

// Returns the pattern for PCRE2 with UTF and UCP. kUnsupported, by name, for constructs that the
// two libraries do not share or that no known tokenizer uses. `where` begins error messages.
Result<std::string> to_pcre2(std::string_view pattern, const std::string& where);

}  // namespace ferry::text
