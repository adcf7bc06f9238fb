// Shared by the LFM2 families: gated short convolutions in most layers, attention with normed q and
// k in the others.
#pragma once

#include <string>
#include <vector>

#include "converters/blocks/graph_names.h"
#include "converters/build_options.h"
#include "converters/config/json_fields.h"
#include "converters/keys/key_rule.h"

namespace ferry::converters {

// The sizes of the convolutions.
Status read_lfm2(const JsonFields& fields, ModelConfig& config);
// All keys but those of experts.
std::vector<KeyRule> lfm2_rules(const ModelConfig& config, const std::string& prefix);
Result<Methods> build_lfm2(const ModelConfig& config, const BuildOptions& options);

}  // namespace ferry::converters
