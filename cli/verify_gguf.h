// ferry verify FILE.gguf --checkpoint SRC.
#pragma once

#include <string>

#include "cli/context.h"
#include "convert/gguf_proof.h"
#include "core/result.h"

namespace ferry::cli {

// The exit code: 0, or 1 where tensors or keys differ, which stderr names.
Result<int> verify_gguf(Context& context, const std::string& file,
                        convert::GgufProofOptions options);

}  // namespace ferry::cli
