// The rules of audio encoders that several families have.
#pragma once

#include <string>
#include <vector>

#include "converters/config/model_config.h"
#include "converters/keys/key_rule.h"

namespace ferry::converters {

// Returns the rules of an encoder of Whisper, whose keys begin with `prefix`, to names under
// `audio.`.
std::vector<KeyRule> whisper_encoder_rules(const std::string& prefix, const ModelConfig& config);

}  // namespace ferry::converters
