// components_of: the parts of a model that have programs of their own, and the key rules of its
// checkpoints.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "converters/family.h"

namespace ferry::converters {

// In the order of execution: a text model is a text decoder or a text encoder; a vision-language
// model is a vision encoder, a token embedding and a text decoder. `config` must have been parsed.
std::vector<Component> components_of(const ModelConfig& config);

// All rules of the checkpoints of the model.
std::vector<KeyRule> key_rules(const ModelConfig& config);

// What precedes the keys of the whole model where it was saved with its head, and is absent where
// it was saved without.
std::string base_prefix(const ModelConfig& config);

// The model_type of the family that the config was read by.
std::string_view family_name(const ModelConfig& config);

}  // namespace ferry::converters
