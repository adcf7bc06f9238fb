// Parts that the LFM2 families share. Most layers are gated short convolutions; the others are
// attention with normed q and k. Source: transformers, models/lfm2/modeling_lfm2.py.
#pragma once

#include <string>
#include <vector>

#include "converters/blocks/blocks.h"
#include "converters/build_options.h"
#include "converters/config/json_fields.h"
#include "converters/keys/key_rule.h"

namespace ferry::converters {

// Reads the sizes of the convolutions.
Status read_lfm2(const JsonFields& fields, ModelConfig& config);
// Returns rules for all keys but those of experts.
std::vector<KeyRule> lfm2_rules(const ModelConfig& config, const std::string& prefix);
Result<Methods> build_lfm2(const ModelConfig& config, const BuildOptions& options);

}  // namespace ferry::converters
