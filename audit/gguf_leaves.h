// What the bytes before the tensor data of a GGUF file are. Private to audit/.
#pragma once

#include <vector>

#include "audit/tiling.h"
#include "core/result.h"
#include "core/tensor_source.h"

namespace ferry::audit {

// Key/value pairs, those of the tokenizer apart, and the list of tensors, of a file that is open.
Result<std::vector<Claim>> claim_gguf_header(const SourceFile& file);

}  // namespace ferry::audit
