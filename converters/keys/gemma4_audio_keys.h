// The rules of audio encoders of Gemma 4.
#pragma once

#include <string>
#include <vector>

#include "converters/config/model_config.h"
#include "converters/keys/key_rule.h"

namespace ferry::converters {

// Returns the rules of an encoder whose keys begin with `tower`, and of the linear behind it, whose
// keys begin with `embedder`, to names under `audio.`.
std::vector<KeyRule> gemma4_audio_rules(const std::string& tower, const std::string& embedder,
                                        const ModelConfig& config);

}  // namespace ferry::converters
