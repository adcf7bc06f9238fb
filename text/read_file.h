// ReadFile reads small files of a checkpoint or of a bundle by name.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "core/result.h"

namespace ferry::text {

// Returns the text of the file `name`, which may have `limit` bytes, or an empty text if there is
// no such file.
using ReadFile = std::function<Result<std::string>(const std::string& name, uint64_t limit)>;

// Returns a function that reads the files of `directory`.
ReadFile files_in(std::string directory);

}  // namespace ferry::text
