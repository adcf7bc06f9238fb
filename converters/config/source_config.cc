// Reads the members that the configs of all encoder-decoders have.
#include <nlohmann/json.hpp>

#include "converters/config/config_parts.h"

namespace ferry::converters {

// Masks of the reference follow is_causal, and generate() follows is_encoder_decoder.
Status check_encoder_decoder(const JsonFields& fields) {
  for (const char* key : {"is_encoder_decoder", "is_causal"}) {
    const nlohmann::json* value = fields.find(key);
    if (!fields.states(key) || (value != nullptr && *value == true)) continue;
    return fields.error(ErrorCode::kUnsupported, key,
                        "is not true: another model than an encoder with a causal decoder");
  }
  return {};
}

ModelConfig ModelConfig::source_encoder() const {
  ModelConfig encoder = *this;
  encoder.num_layers = source->num_layers;
  encoder.num_heads = encoder.num_kv_heads = source->num_heads;
  encoder.head_dim = source->head_dim;
  encoder.intermediate_size = source->intermediate_size;
  encoder.max_positions = source->max_positions;
  encoder.layer_types.assign(static_cast<size_t>(source->num_layers), LayerType::kFullAttention);
  encoder.rope_layers.assign(static_cast<size_t>(source->num_layers), false);
  encoder.two_way = encoder.only_encodes = encoder.is_encoder = true;
  encoder.source.reset();
  return encoder;
}

}  // namespace ferry::converters
