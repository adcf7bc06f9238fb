// Key rules of the experts of mixtures. Checkpoints store experts one by one, or those of a layer
// in one tensor; programs have one stack of matrices (experts, ...).
#pragma once

#include <string>
#include <vector>

#include "converters/keys/key_rule.h"

namespace ferry::converters {

// Rules for router, experts and shared expert below PREFIXlayers.N.mlp; empty for a model without
// experts. Experts are stored one by one (experts.E.gate_proj.weight) or fused
// (experts.gate_up_proj of shape (experts, 2 * size, hidden), gate rows first, and
// experts.down_proj).
std::vector<KeyRule> expert_rules(const std::string& prefix, const ModelConfig& config);
// Rules for router and experts below PREFIXlayers.N.block_sparse_moe. Experts are stored one by one
// as experts.E.w1, w3 and w2 (Mixtral).
std::vector<KeyRule> block_sparse_rules(const std::string& prefix, const ModelConfig& config);

// Rules for experts that are stored one by one. `expert` is their prefix with "{i}" and "{e}";
// `gate`, `up` and `down` name the matrices behind the prefix.
std::vector<KeyRule> stacked_expert_rules(const std::string& expert, const char* gate,
                                          const char* up, const char* down);

// Rules for experts that are in two tensors: gate and up, gate rows first, and down.
std::vector<KeyRule> fused_expert_rules(const std::string& gate_up_key,
                                        const std::string& down_key);

// Rules for experts without a gate, below `experts`, which ends with a dot: one by one as
// E.up_proj.weight and E.down_proj.weight, or in the tensors up_proj and down_proj.
std::vector<KeyRule> plain_expert_rules(const std::string& experts);

// Like fused_expert_rules(), but all matrices are transposed, (experts, hidden, 2 * size) and
// (experts, size, hidden).
std::vector<KeyRule> transposed_expert_rules(const std::string& gate_up_key,
                                             const std::string& down_key);

// Like fused_expert_rules(), but the matrices of either tensor may be transposed. The shape of the
// tensor tells. If both shapes are equal, the matrices are taken as not transposed.
std::vector<KeyRule> either_way_expert_rules(const std::string& gate_up_key,
                                             const std::string& down_key);

// Rules for routers, experts and shared experts below PREFIXlayers.N.mlp. Shared experts have
// biases where config.mlp_bias is set. The layers for multi-token prediction, which follow those of
// the decoder, are dropped.
std::vector<KeyRule> deepseek_expert_rules(const std::string& prefix, const ModelConfig& config);

// Rules for PREFIXlayers.N.mlp.shared_experts, with biases where config.mlp_bias is set.
std::vector<KeyRule> shared_experts_rules(const std::string& prefix, const ModelConfig& config);

// Rules for the experts of GPT-OSS. All experts are in one tensor, whose matrices are transposed,
// and gate and up take turns. The keys are below `experts`, which ends with a dot: gate_up_proj
// (experts, hidden, 2 * size), down_proj (experts, size, hidden), gate_up_proj_bias and
// down_proj_bias. Dequantised MXFP4 weights are the matrices gate_up_proj_blocks (experts * 2 *
// size, hidden) and down_proj_blocks (experts * hidden, size).
std::vector<KeyRule> clamped_expert_rules(const std::string& experts);

// Rules for Granite 4, and for Granite 3 with experts: the keys of Llama, shared_mlp and, in a
// model with experts, block_sparse_moe. Gate and up of an MLP are in one tensor, and so are those
// of all experts. The keys of Mamba layers are not among them.
std::vector<KeyRule> granite_moe_rules(const ModelConfig& config, const std::string& prefix);

}  // namespace ferry::converters
