// What the bytes before the tensor data of a GGUF file are. Private to audit/.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "audit/tiling.h"
#include "core/tensor_source.h"
#include "formats/gguf/metadata.h"

namespace ferry::audit {

// Key/value pairs, those of the tokenizer apart, and the list of tensors. `header` is all that
// precedes the data, and `metadata` is of it.
std::vector<Claim> claim_gguf_header(const formats::GgufMetadata& metadata,
                                     std::span<const std::byte> header,
                                     const std::vector<TensorEntry>& tensors);

}  // namespace ferry::audit
