// A check of head sizes that families share.
#pragma once

#include "converters/config/json_fields.h"
#include "converters/config/model_config.h"

namespace ferry::converters {

// A ModelType::read for types whose heads together are as wide as the hidden state: kBadInput for
// another head_dim.
Status check_whole_heads(const JsonFields& fields, ModelConfig& config);

}  // namespace ferry::converters
