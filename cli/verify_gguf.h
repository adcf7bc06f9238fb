// ferry verify FILE.gguf --checkpoint SRC.
#pragma once

#include <string>

#include "cli/context.h"
#include "core/result.h"

namespace ferry::cli {

// The exit code: 0, or 1 where tensors or keys differ, which stderr names. `config` may be empty.
Result<int> verify_gguf(Context& context, const std::string& file, const std::string& checkpoint,
                        const std::string& config);

}  // namespace ferry::cli
