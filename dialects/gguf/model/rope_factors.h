// rope_freqs.weight holds the RoPE scaling of a GGUF file, mostly llama3's. Element i divides the
// i-th inverse frequency; the parameters that it was computed from are not in the file.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "converters/config/model_config.h"

namespace ferry::converters {

// Whether the scaling of `rope` divides frequencies by `factors`, one per pair of rotary
// dimensions, as far as f32 tells (1e-5).
bool gives_rope_factors(const RopeConfig& rope, const std::vector<float>& factors);

// Returns parameters of llama3 scaling that give `factors`, for frequencies of base `theta`: those
// of Llama 3.1 and later (low 1, high 4) where they do, or else any equivalent ones. nullopt where
// there are none. The parameters are not unique: multiplying low, high and the original length by
// one number changes nothing.
std::optional<RopeConfig> recover_llama3_scaling(double theta, const std::vector<float>& factors);

}  // namespace ferry::converters
