// Mixture of experts: expert_rules() and sparse_mlp(). A router scores all experts for every token.
// The token passes through those with the highest scores, and through a shared one where the family
// has it.
#pragma once

#include <string>
#include <vector>

#include "converters/blocks/decoder_context.h"
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

// Like fused_expert_rules(), but the matrices of either tensor may be transposed. The shape of the
// tensor tells. If both shapes are equal, the matrices are taken as not transposed.
std::vector<KeyRule> either_way_expert_rules(const std::string& gate_up_key,
                                             const std::string& down_key);

// Returns the sum over the chosen experts of score * expert(x), plus sigmoid(gate x) * shared(x),
// or plus shared(x) where the shared expert has no gate. x is [1,T,hidden], `prefix` is
// "layers.N.feed_forward". The router and the shared gate are f32 in any bundle.
ValueId sparse_mlp(GraphBuilder& b, const DecoderContext& c, ValueId x, int64_t layer,
                   const std::string& prefix);

}  // namespace ferry::converters
