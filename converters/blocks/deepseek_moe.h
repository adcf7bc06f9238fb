// The experts of DeepSeek V2 and V3, and of GLM 4.5: routed ones below layers.N.mlp.experts, which
// may be chosen from groups, and shared ones that are one wide MLP without a gate.
#pragma once

#include <string>
#include <vector>

#include "converters/config/json_fields.h"
#include "converters/keys/key_rule.h"

namespace ferry::converters {

// The readers need the sizes of the routed experts. They do nothing for a model without experts.

// Reads the shared experts, the scale of the chosen scores, and the number of prediction layers.
Status read_deepseek_experts(const JsonFields& fields, ModelConfig& config);
// Reads n_group and topk_group. The score of a group is the sum of its `best` best experts.
Status read_expert_groups(const JsonFields& fields, ModelConfig& config, int64_t best);
// Reads all of the above, for models whose scores are sigmoids and where a bias takes part in the
// choice.
Status read_sigmoid_experts(const JsonFields& fields, ModelConfig& config);

// Rules for routers, experts and shared experts below PREFIXlayers.N.mlp. Shared experts have
// biases where config.mlp_bias is set. The layers for multi-token prediction, which follow those of
// the decoder, are dropped.
std::vector<KeyRule> deepseek_expert_rules(const std::string& prefix, const ModelConfig& config);

}  // namespace ferry::converters
