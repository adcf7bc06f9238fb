// The blocks that Gemma 3n has and no other family: alternating updates of several residual streams
// (AltUp), a low-rank residual (Laurel), and activations cut to the largest ones.
// Source: transformers, models/gemma3n/modeling_gemma3n.py.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "converters/blocks/blocks.h"
#include "converters/build_options.h"
#include "converters/config/json_fields.h"
#include "converters/config/model_config.h"
#include "converters/keys/key_rule.h"

namespace ferry::converters {

// Reads the keys that only Gemma 3n has into ModelConfig::numbers. Needs num_layers.
Status read_gemma3n(const JsonFields& fields, ModelConfig& config);

// Returns how many standard deviations above the mean an activation of the layer must be; nullopt
// where all count.
std::optional<double> gemma3n_cutoff(const ModelConfig& config, int64_t layer);

Result<Methods> build_gemma3n(const ModelConfig& config, const BuildOptions& options);

// Returns the number of residual streams of AltUp. A checkpoint has a projection into and out of
// each stream but the first.
int64_t altup_streams(const ModelConfig& config);

// Rules for the keys of the text decoder (keys/gemma3n_keys.cc).
std::vector<KeyRule> gemma3n_rules(const ModelConfig& config, const std::string& prefix);

}  // namespace ferry::converters
