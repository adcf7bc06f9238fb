// The rules of audio encoders of Gemma 3n, and of what makes rows of the text decoder.
#pragma once

#include <string>
#include <vector>

#include "converters/config/model_config.h"
#include "converters/keys/key_rule.h"

namespace ferry::converters {

// Returns the rules of an encoder whose keys begin with `tower`, to names under `audio.`.
std::vector<KeyRule> gemma3n_audio_rules(const std::string& tower, const ModelConfig& config);

// Returns the rules of an embedder whose keys begin with `embedder`, to names under `name`. Without
// an encoder before it the norm of its rows is dropped.
std::vector<KeyRule> gemma3n_embedder_rules(const std::string& embedder, const std::string& name,
                                            bool has_encoder);

}  // namespace ferry::converters
