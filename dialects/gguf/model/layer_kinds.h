// Files of models whose layers of full attention differ from those with a window (gemma4), read and
// written. Source: llama.cpp, src/models/gemma4.cpp, and conversion/gemma.py.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "converters/config/model_config.h"
#include "core/gguf_key_value.h"
#include "core/result.h"
#include "dialects/gguf/model/reading.h"

namespace ferry::converters {

// Divides the frequency of pairs that RoPE does not turn, in rope_freqs.weight.
inline constexpr float kUnturned = 1e30F;

// Reads heads, MLPs, shared keys and experts into the config. Needs the types of its layers.
Status read_kinds_of_layers(GgufReading& reading);

// Returns the keys of such a model, without "ARCHITECTURE.".
std::vector<GgufKeyValue> kinds_of_layers_keys(const ModelConfig& config);

// Whether layers from `first` on find their keys where readers take them: layer first - 2 has a
// window and layer first - 1 has full attention. `slides` says which layers have a window.
bool takes_last_two_keys(const std::vector<bool>& slides, int64_t first);

// Returns the divisors of the frequencies of full attention, one for each pair of a head.
std::vector<float> proportional_factors(const RopeConfig& rope, int64_t head_dim);
// The other way: returns the RoPE of a config that has these divisors, or nullopt where none has.
std::optional<nlohmann::json> proportional_rope(double theta, const std::vector<float>& factors);

}  // namespace ferry::converters
