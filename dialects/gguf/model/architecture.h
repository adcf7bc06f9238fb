// The architectures of GGUF that the families state (converters/family_gguf.h).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "converters/family_gguf.h"

namespace ferry::converters {

// Those of this name that are read; several where the name does not tell the model. Those that a
// file must have a sign of precede.
std::vector<const GgufArchitecture*> find_gguf_architectures(std::string_view name);
// That of a model, of the text part where it takes images; nullptr where none is written.
const GgufArchitecture* gguf_architecture_of(const ModelConfig& config);
// "llama, qwen2, ..." for messages.
std::string gguf_architecture_names();

}  // namespace ferry::converters
