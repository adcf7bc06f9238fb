// Rules for the keys of the audio encoder of Granite Speech and of what makes rows of its states,
// to names under `audio.`.
#pragma once

#include <string>
#include <vector>

#include "converters/keys/key_rule.h"
#include "converters/keys/standard_keys.h"

namespace ferry::converters {

// Rules for the encoder below `prefix`. Without a layer before the middle the probabilities of
// labels are added nowhere, and their weights are dropped.
std::vector<KeyRule> granite_audio_rules(const std::string& prefix, const ModelConfig& config);

// Rules for the projector below `prefix`. MLPs for tokens of text are dropped.
std::vector<KeyRule> window_projector_rules(const std::string& prefix, const ModelConfig& config);

}  // namespace ferry::converters
