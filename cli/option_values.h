// Parses texts of options: numbers, times, --memory and --mode.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "core/result.h"
#include "runner/decoder.h"
#include "runner/method.h"

namespace ferry::cli {

// Parses a decimal integer such as "12", "-3", "+7" or "012" (which is 12). Returns nullopt for
// another text and for a number out of range.
std::optional<int64_t> parse_integer(std::string_view text);
// Parses a number such as "0.5", "1e-3" or "+2". Returns nullopt for another text, infinity, NaN
// and a number out of range.
std::optional<double> parse_real(std::string_view text);

// Checks the value of --memory. Returns kUsage if it is less than 1, and nullopt if it is absent.
Result<std::optional<uint64_t>> memory_limit(const std::optional<int64_t>& bytes);
// Reads the value of --kv-bits (runner::parse_kv_bits). Empty: as the program states them. kUsage
// for anything else.
Result<runner::KvBits> kv_bits(const std::string& text);

// Parses the value of --mode. Returns kUsage, which lists the modes, for another name.
Result<runner::DecodeMode> parse_mode(const std::string& name);

// Returns the seconds since 1970 of a time such as "2026-03-01" or "2026-03-01T12:00:00Z". Returns
// kUsage, with the name of the option, for another text.
Result<int64_t> parse_time(const char* option, const std::string& text);

}  // namespace ferry::cli
