// Reads and writes small files of the state folder. A file exists as a whole or not at all.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "core/result.h"

namespace ferry::batch {

// After a power failure a file that was written with kContents holds the new or the old text; with
// kNo it may be empty. A kill of the process harms neither.
enum class Durable { kNo, kContents };

// Writes `text` to the file `temporary`, which is on the same file system, and renames that to
// `path`.
Status write_small_file(const std::string& path, const std::string& temporary,
                        std::string_view text, Durable durable);

// Returns nullopt if there is no such file or the file is empty.
Result<std::optional<std::string>> read_small_file(const std::string& path);

// Makes a folder and those above it, as far as they are missing.
Status make_directories(const std::string& path);

// Sets the times of a file to the time of its file server's clock. Returns false if there is no
// such file.
bool touch(const std::string& path);
// Returns how many seconds ago `path` was touched by the file server's clock. To read that clock,
// it touches `beside`, a file on the same file system. Returns nullopt if either file is missing.
std::optional<double> seconds_since_touch(const std::string& path, const std::string& beside);

}  // namespace ferry::batch
