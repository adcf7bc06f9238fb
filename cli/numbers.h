// Numbers of the command line: decimal, and in range or refused.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "core/result.h"

namespace ferry::cli {

// "12", "-3", "+7", "012" (which is 12). Empty for anything else, and beyond int64_t.
std::optional<int64_t> parse_integer(std::string_view text);
// "0.5", "1e-3", "+2". Empty for anything else, for infinity and NaN, and beyond double.
std::optional<double> parse_real(std::string_view text);

// The value of --memory, in bytes. kUsage unless it is at least 1; none where there is none.
Result<std::optional<uint64_t>> memory_limit(const std::optional<int64_t>& bytes);

}  // namespace ferry::cli
