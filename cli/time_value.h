// Parses texts of options that are times.
#pragma once

#include <cstdint>
#include <string>

#include "core/result.h"

namespace ferry::cli {

// Returns the seconds since 1970 of a time such as "2026-03-01" or "2026-03-01T12:00:00Z". Returns
// kUsage, with the name of the option, for another text.
Result<int64_t> parse_time(const char* option, const std::string& text);

}  // namespace ferry::cli
