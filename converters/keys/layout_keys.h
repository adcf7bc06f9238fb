// Key rules of weights that checkpoints store in another layout than programs use: transposed, with
// another order of rows, or packed.
#pragma once

#include <optional>
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

// -- packed projections: one source key, several targets

// The layout in which the family's own checkpoints pack a key; nullopt where they store the parts
// separately. A key that exists in two layouts has a rule for each. map_keys() takes that of
// MappingOptions::packed_layout, else that of the family's own checkpoints. Without either a packed
// key is refused.
using OwnLayout = std::optional<PackedLayout>;

// Rules from NAME.weight, and NAME.bias if `bias`, to attention.wq, wk and wv. `name` includes the
// prefix and "{i}".
std::vector<KeyRule> packed_qkv_rules(const std::string& name, bool bias, OwnLayout own);
// Rules from NAME.weight, and NAME.bias if `bias`, to feed_forward.w1 and w3.
std::vector<KeyRule> packed_gate_up_rules(const std::string& name, bool bias, OwnLayout own);
// Rules for in_proj_qkvz and in_proj_ba of the delta nets below `prefix`.
std::vector<KeyRule> packed_delta_net_rules(const std::string& prefix, OwnLayout own);

// Rules from NAME.q_proj and NAME.k_proj to wq and wk, for families whose RoPE rotates neighbouring
// dimensions. The targets are TARGET.wq and TARGET.wk.
std::vector<KeyRule> paired_rope_rules(const std::string& name, bool bias,
                                       const std::string& target = "layers.{i}.attention");
// Rules for all matrices of such a family under their usual names, with biases as asked for.
std::vector<KeyRule> paired_matrix_rules(const std::string& prefix, bool qkv_bias, bool output_bias,
                                         bool mlp_bias);
// Rule for CodeGen's qkv_proj.
KeyRule codegen_qkv_rule(const std::string& source);

// Rules for self_attn.qkv_proj and mlp.gate_up_proj, which serving stacks export, for families that
// store q, k, v, gate and up separately.
std::vector<KeyRule> packed_export_rules(const std::string& prefix, bool qkv_bias, bool mlp_bias);

// Rules for query_key_value, which has q, k and v of one key-value head after the other, and for
// dense, below LAYER ATTENTION.
std::vector<KeyRule> query_key_value_rules(const std::string& layer, const std::string& attention,
                                           bool bias);

// Rules for wte, h.N.ln_1 and ln_f of GPT-2 and CodeGen below `prefix`. The tensors of h.N.attn
// that are no weights are dropped.
std::vector<KeyRule> gpt_rules(const std::string& prefix);

}  // namespace ferry::converters
