// Values of options, from their texts: numbers, which are decimal and in range, and --mode.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "core/result.h"
#include "runner/decoder.h"

namespace ferry::cli {

// "12", "-3", "+7", "012" (which is 12). Empty for anything else, and beyond int64_t.
std::optional<int64_t> parse_integer(std::string_view text);
// "0.5", "1e-3", "+2". Empty for anything else, for infinity and NaN, and beyond double.
std::optional<double> parse_real(std::string_view text);

// The value of --memory, in bytes. kUsage unless it is at least 1; none where there is none.
Result<std::optional<uint64_t>> memory_limit(const std::optional<int64_t>& bytes);

// The value of --mode. kUsage, with the modes that there are, for other names.
Result<runner::DecodeMode> parse_mode(const std::string& name);

}  // namespace ferry::cli
