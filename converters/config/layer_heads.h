// read_layer_heads() reads the heads of single layers, as the configuration classes of Gemma 4 and
// EmbeddingGemma 2 have them: layers of full attention may have other heads than those with a
// window.
#pragma once

#include <string_view>

#include "converters/config/json_fields.h"
#include "converters/config/model_config.h"

namespace ferry::converters {

// Size of the heads of full attention where a config states none.
inline constexpr int64_t kFullHeadDim = 512;

// Returns an error if the config states null for a key that must not be null.
Status require_value(const JsonFields& fields, std::string_view key);

// Makes the last layer one of full attention, whatever layer_types says, as the reference does, and
// reads per_layer_config, which states the heads of single layers. Layers of one type must have
// equal heads, because they share a RoPE. Returns whether the config states per_layer_config, which
// may be null.
Result<bool> read_layer_heads(const JsonFields& fields, ModelConfig& config);

}  // namespace ferry::converters
