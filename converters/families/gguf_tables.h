// The parts of GgufArchitecture that several families share: names of tensors, in files and in
// checkpoints, orders of keys, and tensors that other readers do not know.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "converters/family_gguf.h"

namespace ferry::converters::gguf_tables {

using GgufNames = std::span<const GgufName>;
using KeyOrder = std::vector<GgufKey>;
using TensorNames = std::vector<std::string_view>;

// The file has 1 more, where the architecture has shifted norms.
inline constexpr GgufForm kNorm = {.values = GgufForm::Values::kNorm};
inline constexpr GgufForm kConv = {.shape = GgufForm::Shape::kChannelAxis};
inline constexpr GgufForm kStacked = {.shape = GgufForm::Shape::kExperts};

// kFusedExperts stands beside kExperts, and kFusedAttention beside kAttention where no layer has
// linear attention. kExpertWeights follows the names of checkpoints.
extern const GgufNames kFrame, kMlp, kExperts, kFusedExperts, kExpertWeights, kAttention,
    kFusedAttention, kPairedAttention, kValueAndOutput, kPreNorm, kPostAttentionNorm, kFourNorms,
    kTiledDeltaNet, kGroupedDeltaNet, kTwoPostNorms, kPackedProjections, kGateUp, kLfm2,
    kLatentAttention, kGraniteExperts;
// Biases of the layer norms before attention and MLP, and behind the last layer.
extern const GgufNames kNormBiases;
// gate.e_score_correction_bias and shared_experts. Precedes the names of other experts.
extern const GgufNames kSharedExperts;

// The keys with which many architectures begin, and those that follow them in this one.
KeyOrder standard_keys(const KeyOrder& more = {});
KeyOrder llama_keys(const KeyOrder& more = {});
KeyOrder granite_keys(const KeyOrder& more = {});
KeyOrder gemma_keys(const KeyOrder& more = {});
KeyOrder deepseek_keys();

// Tensors for GgufArchitecture::unread.
inline constexpr std::string_view kOutputBias = "blk.{i}.attn_output.bias";
TensorNames mlp_biases();
TensorNames block_biases();  // of the output of attention, and of the MLP
TensorNames latent_biases();

}  // namespace ferry::converters::gguf_tables
