// Parts that the hybrid families (Qwen3.5, Qwen3-Next) share. Every few layers have gated full
// attention, the others have Gated DeltaNet. Norms multiply by (1 + w).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "converters/blocks/blocks.h"
#include "converters/blocks/decoder_context.h"
#include "converters/build_options.h"
#include "converters/keys/key_rule.h"

namespace ferry::converters {

// Returns rules for all keys except the input projections of the linear layers, which the families
// pack differently.
std::vector<KeyRule> hybrid_rules(const ModelConfig& config, const std::string& prefix);
// Returns rules for all keys, where the input projections of the linear layers are in_proj_qkv,
// in_proj_z, in_proj_b and in_proj_a. Serving stacks export them packed.
std::vector<KeyRule> separate_hybrid_rules(const ModelConfig& config, const std::string& prefix);

// How Gated DeltaNet differs between families.
struct DeltaNetStyle {
  bool apart = false;                   // q, k and v have projections of their own
  bool doubled = false;                 // beta is in (0, 2)
  std::optional<double> norm_eps = {};  // of the norm behind the recurrence; none: rms_norm_eps
};

// Builds Gated DeltaNet, the token mixer of a linear layer, with its convolution and recurrent
// state. x and the result are [1,T,hidden_size].
ValueId gated_delta_net(GraphBuilder& b, const DecoderContext& c, ValueId x, int64_t layer,
                        const DeltaNetStyle& style);

Result<Methods> build_hybrid(const ModelConfig& config, const BuildOptions& options);

}  // namespace ferry::converters
