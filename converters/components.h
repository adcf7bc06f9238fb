// components_of() lists the parts of a model that have programs of their own; key_rules() gives the
// key rules of its checkpoints.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "converters/family.h"

namespace ferry::converters {

// Returns the components in the order of execution. A text model is a text decoder or a text
// encoder; a vision-language model is a vision encoder, a token embedding and a text decoder.
// `config` must have been parsed.
std::vector<Component> components_of(const ModelConfig& config);

// Returns all rules of the checkpoints of the model.
std::vector<KeyRule> key_rules(const ModelConfig& config);

// Returns the prefix of the keys of a model that was saved with its head. A model that was saved
// without its head lacks the prefix.
std::string base_prefix(const ModelConfig& config);

// Returns the name of the family that read the config, a model_type.
std::string_view family_name(const ModelConfig& config);

}  // namespace ferry::converters
