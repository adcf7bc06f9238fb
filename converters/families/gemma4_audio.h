// How the config of Gemma 4 states its audio encoder.
#pragma once

#include "converters/config/json_fields.h"
#include "converters/config/model_config.h"

namespace ferry::converters::families {

// Reads audio_config and audio_token_id of the outer config. kUnsupported, by name, for values with
// which the reference fails, or whose effect Ferry does not compute.
Status read_gemma4_sound(const JsonFields& outer, ModelConfig& config);

}  // namespace ferry::converters::families
