// The value of --mode.
#pragma once

#include <string>

#include "core/result.h"
#include "runner/decoder.h"

namespace ferry::cli {

// kUsage, with the modes that there are, for other names.
Result<runner::DecodeMode> parse_mode(const std::string& name);

}  // namespace ferry::cli
