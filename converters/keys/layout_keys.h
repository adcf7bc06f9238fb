// Key rules of weights that checkpoints store in another layout than programs use.
#pragma once

#include <string>
#include <vector>

#include "converters/keys/key_rule.h"

namespace ferry::converters {

// Rules for GPT-2's layers, whose matrices are those of Conv1D, (in, out): LAYER attn.c_attn, whose
// columns are [q | k | v], attn.c_proj, mlp.c_fc and mlp.c_proj, with biases.
std::vector<KeyRule> conv1d_rules(const std::string& layer, const ModelConfig& config);

// Rules for q_norm and k_norm below `prefix`, norms over head_dim that have a weight for each head,
// (heads, head_dim). Their elements get the order of paired_rope_rules().
std::vector<KeyRule> paired_head_norm_rules(const std::string& prefix, const ModelConfig& config);
// Rules for q_layernorm.norms.N and k_layernorm.norms.N below `prefix`, which become one weight
// (heads, head_dim) each.
std::vector<KeyRule> separate_head_norm_rules(const std::string& prefix, const ModelConfig& config);

}  // namespace ferry::converters
