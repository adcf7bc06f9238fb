// Checks of the heads' sizes that several families need.
#pragma once

#include "converters/config/json_fields.h"
#include "converters/config/model_config.h"

namespace ferry::converters {

// A ModelType::read for types whose heads together are as wide as the hidden state. Returns
// kBadInput for another head_dim.
Status check_whole_heads(const JsonFields& fields, ModelConfig& config);
// Returns kBadInput unless the heads make `blocks` blocks of equal size.
Status check_head_blocks(const JsonFields& fields, const ModelConfig& config, int64_t blocks);
// Reads rotary_dim, which must be stated, even, and at most head_dim.
Status read_rotary_dim(const JsonFields& fields, ModelConfig& config);

}  // namespace ferry::converters
