// Key rules of packed projections: one source key, several targets. A tensor that comes in two
// layouts has a rule for each, of which map_keys takes the one that --packed-layout names, else the
// `own` one of the family; where a family has none, because its own checkpoints store the parts
// apart, a packed key is refused until somebody says which layout it has.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "converters/keys/key_rule.h"

namespace ferry::converters {

using OwnLayout = std::optional<PackedLayout>;

// NAME.weight, and NAME.bias if asked for, to attention.wq, wk and wv. `name` is whole, with "{i}".
std::vector<KeyRule> packed_qkv_rules(const std::string& name, bool bias, OwnLayout own);
// To feed_forward.w1 and w3.
std::vector<KeyRule> packed_gate_up_rules(const std::string& name, bool bias, OwnLayout own);
// in_proj_qkvz and in_proj_ba of the delta nets below `prefix`.
std::vector<KeyRule> packed_delta_net_rules(const std::string& prefix, OwnLayout own);

// q_proj and k_proj below `name` to wq and wk, for families that turn neighbouring dimensions.
std::vector<KeyRule> paired_rope_rules(const std::string& name, bool bias);
// CodeGen's qkv_proj.
KeyRule codegen_qkv_rule(const std::string& source);

// For families that store q, k, v, gate and up apart: self_attn.qkv_proj and mlp.gate_up_proj, as
// serving stacks export them.
std::vector<KeyRule> packed_export_rules(const std::string& prefix, bool qkv_bias, bool mlp_bias);

}  // namespace ferry::converters
