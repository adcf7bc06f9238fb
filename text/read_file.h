// ReadFile: the small files of a checkpoint or of a bundle, by name.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "core/result.h"

namespace ferry::text {

// The text of the file `name`, at most `limit` bytes; an empty text if there is no such file.
using ReadFile = std::function<Result<std::string>(const std::string& name, uint64_t limit)>;

// Those of a directory.
ReadFile files_in(std::string directory);

}  // namespace ferry::text
