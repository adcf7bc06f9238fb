// The experts of DeepSeek V2 and V3, and of GLM 4.5: routed ones below layers.N.mlp.experts, which
// may be chosen from groups, and shared ones that are one wide MLP without a gate.
#pragma once

#include <string>
#include <vector>

#include "converters/config/json_fields.h"
#include "converters/keys/key_rule.h"

namespace ferry::converters {

// The readers need the sizes of the routed experts, and do nothing for a model without experts.

// Shared experts, the scale of the chosen scores, and the number of prediction layers.
Status read_deepseek_experts(const JsonFields& fields, ModelConfig& config);
// n_group and topk_group. A group is as good as its `best` best experts together.
Status read_expert_groups(const JsonFields& fields, ModelConfig& config, int64_t best);
// All of the above, where scores are sigmoids and a bias takes part in the choice.
Status read_sigmoid_experts(const JsonFields& fields, ModelConfig& config);

// Routers, experts and shared experts below PREFIXlayers.N.mlp, the latter with mlp_bias; drops the
// layers for multi-token prediction, which follow those of the decoder.
std::vector<KeyRule> deepseek_expert_rules(const std::string& prefix, const ModelConfig& config);

}  // namespace ferry::converters
