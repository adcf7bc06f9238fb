// Names of tensors, which architecture.cc puts together: in files and in checkpoints.
#pragma once

#include <span>

#include "dialects/gguf/model/architecture.h"

namespace ferry::converters::gguf_names {

using GgufNames = std::span<const GgufName>;

// The file has 1 more, where the architecture has shifted norms.
inline constexpr GgufForm kNorm = {.values = GgufForm::Values::kNorm};
inline constexpr GgufForm kConv = {.shape = GgufForm::Shape::kChannelAxis};
inline constexpr GgufForm kStacked = {.shape = GgufForm::Shape::kExperts};

// Of several architectures (names.cc). kFusedExperts stands beside
// kExperts, kFusedAttention beside kAttention where no layer has linear attention. kExpertWeights
// follows the names of checkpoints.
extern const GgufNames kFrame, kMlp, kExperts, kFusedExperts, kExpertWeights, kAttention,
    kFusedAttention, kPairedAttention, kValueAndOutput, kPreNorm, kPostAttentionNorm, kFourNorms,
    kTiledDeltaNet, kGroupedDeltaNet, kTwoPostNorms, kPackedProjections, kGateUp, kLfm2;

// Of one or two (names_single.cc).
// Biases of the layer norms before attention and MLP, and behind the last layer.
extern const GgufNames kNormBiases;
// gate.e_score_correction_bias and shared_experts. Precedes the names of other experts.
extern const GgufNames kSharedExperts;
extern const GgufNames kLatentAttention;
extern const GgufNames kGptOss;
extern const GgufNames kGraniteExperts;
extern const GgufNames kMixtralExperts;
extern const GgufNames kMamba;
extern const GgufNames kLfm2Experts;
extern const GgufNames kGlm4Norms;
extern const GgufNames kStableLm;
extern const GgufNames kHunyuan;
extern const GgufNames kStarcoder2;
// Whole models.
extern const GgufNames kPhi2;
extern const GgufNames kGpt2;
extern const GgufNames kGptNeoX;

}  // namespace ferry::converters::gguf_names
