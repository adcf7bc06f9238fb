// The architectures of GGUF that the families state (converters/family_gguf.h).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "converters/family_gguf.h"

namespace ferry::converters {

// Returns the architectures of this name that are read; several where the name does not determine
// the model. Those with a sign that a file must have come first.
std::vector<const GgufArchitecture*> find_gguf_architectures(std::string_view name);
// Returns the architecture of a model, for the text part where it takes images; nullptr where none
// is written.
const GgufArchitecture* gguf_architecture_of(const ModelConfig& config);
// Returns "llama, qwen2, ..." for messages.
std::string gguf_architecture_names();

}  // namespace ferry::converters
