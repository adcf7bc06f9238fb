// Files of the state folder: small, written at once, there as a whole or not at all.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "core/result.h"

namespace ferry::batch {

// With kContents what is found under the name after a power failure is whole: this text, or the one
// before. Without, it may be an empty file. A kill of the process is no danger to either.
enum class Durable { kNo, kContents };

// Writes `text` under the name `temporary`, on the same file system, and renames it to `path`.
Status write_small_file(const std::string& path, const std::string& temporary,
                        std::string_view text, Durable durable);

// nullopt where there is no such file, or nothing in it.
Result<std::optional<std::string>> read_small_file(const std::string& path);

// The folder and those above it, where they are missing.
Status make_directories(const std::string& path);

// Sets the times of a file to the clock of its file server. False where there is no such file.
bool touch(const std::string& path);
// How long ago, by that clock, `path` was touched: compared with `beside`, a file that is touched
// for it. nullopt where either is missing.
std::optional<double> seconds_since_touch(const std::string& path, const std::string& beside);

}  // namespace ferry::batch
