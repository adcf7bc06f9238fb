// Mixture of experts: expert_rules() and sparse_mlp(). A router scores all experts for every token.
// The token passes through those with the highest scores, and through a shared one where the family
// has it.
#pragma once

#include <string>
#include <vector>

#include "converters/blocks/decoder_context.h"
#include "converters/keys/key_rule.h"

namespace ferry::converters {

// Router, experts and shared expert below PREFIXlayers.N.mlp; empty for a model without experts.
// Experts are stored one by one (experts.E.gate_proj.weight) or fused (experts.gate_up_proj of
// shape (experts, 2 * size, hidden), gate rows first, and experts.down_proj).
std::vector<KeyRule> expert_rules(const std::string& prefix, const ModelConfig& config);
// Router and experts below PREFIXlayers.N.block_sparse_moe, one by one as experts.E.w1, w3 and w2
// (Mixtral).
std::vector<KeyRule> block_sparse_rules(const std::string& prefix, const ModelConfig& config);

// sum over the chosen experts of score * expert(x), plus sigmoid(gate x) * shared(x); x
// [1,T,hidden], `prefix` is "layers.N.feed_forward". Router and shared gate are f32 in any bundle.
// Probes record the router of the layer: router_logits.N f32 [T,experts] before the softmax,
// router_experts.N i64 [T,k] and router_weights.N f32 [T,k], the chosen experts and their softmax
// values.
ValueId sparse_mlp(GraphBuilder& b, const DecoderContext& c, ValueId x, int64_t layer,
                   const std::string& prefix);

}  // namespace ferry::converters
