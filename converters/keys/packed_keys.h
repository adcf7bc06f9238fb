// Key rules of packed projections: one source key, several targets. A key that exists in two
// layouts has a rule for each. map_keys() takes that of MappingOptions::packed_layout, else that of
// the family's own checkpoints. A family whose own checkpoints store the parts separately has no
// own layout: unless the option names one, a packed key is refused.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "converters/keys/key_rule.h"

namespace ferry::converters {

using OwnLayout = std::optional<PackedLayout>;

// Rules from NAME.weight, and NAME.bias if `bias`, to attention.wq, wk and wv. `name` includes the
// prefix and "{i}".
std::vector<KeyRule> packed_qkv_rules(const std::string& name, bool bias, OwnLayout own);
// Rules from NAME.weight, and NAME.bias if `bias`, to feed_forward.w1 and w3.
std::vector<KeyRule> packed_gate_up_rules(const std::string& name, bool bias, OwnLayout own);
// Rules for in_proj_qkvz and in_proj_ba of the delta nets below `prefix`.
std::vector<KeyRule> packed_delta_net_rules(const std::string& prefix, OwnLayout own);

// Rules from NAME.q_proj and NAME.k_proj to wq and wk, for families whose RoPE rotates neighbouring
// dimensions.
std::vector<KeyRule> paired_rope_rules(const std::string& name, bool bias);
// Rules for all matrices of such a family under their usual names, with biases as asked for.
std::vector<KeyRule> paired_matrix_rules(const std::string& prefix, bool qkv_bias, bool output_bias,
                                         bool mlp_bias);
// Rule for CodeGen's qkv_proj.
KeyRule codegen_qkv_rule(const std::string& source);

// Rules for self_attn.qkv_proj and mlp.gate_up_proj, which serving stacks export, for families that
// store q, k, v, gate and up separately.
std::vector<KeyRule> packed_export_rules(const std::string& prefix, bool qkv_bias, bool mlp_bias);

}  // namespace ferry::converters
