// The parts of GgufArchitecture that several families share: names of tensors, in files and in
// checkpoints, orders of keys, and tensors that other readers do not know.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "converters/family_gguf.h"
#include "converters/keys/row_layouts.h"

namespace ferry::converters::gguf_tables {

using GgufNames = std::span<const GgufName>;
using KeyOrder = std::vector<GgufKey>;
using TensorNames = std::vector<std::string_view>;

// Values in the file are larger by 1 where the architecture has norms that multiply by 1 + w.
inline constexpr GgufForm kNorm = {.values = GgufForm::Values::kNorm};
inline constexpr GgufForm kConv = {.shape = GgufForm::Shape::kChannelAxis};
inline constexpr GgufForm kStacked = {.shape = GgufForm::Shape::kExperts};

// The file has q, k and v of all heads, one after the other; a checkpoint has them head by head.
RowOrder qkv_by_head(const ModelConfig& config);
RowOrder qkv_apart(const ModelConfig& config);
inline constexpr GgufForm kQkvByHead = {.order = qkv_by_head, .written = qkv_apart};
// Vectors with a number for each head of Mamba-2, which files have as columns; the norm of Mamba-2
// has a row for each group.
extern const GgufForm kHeadValues, kHeadNegExp, kGroupRows;
// Values are -exp(A_log).
inline constexpr GgufForm kNegExp = {.values = GgufForm::Values::kNegExp};

// kFusedExperts stands beside kExperts, and kFusedAttention beside kAttention where no layer has
// linear attention. kExpertWeights follows the names of checkpoints.
extern const GgufNames kFrame, kMlp, kExperts, kFusedExperts, kExpertWeights, kAttention,
    kFusedAttention, kPairedAttention, kValueAndOutput, kPreNorm, kPostAttentionNorm, kFourNorms,
    kTiledDeltaNet, kGroupedDeltaNet, kTwoPostNorms, kPackedProjections, kGateUp, kLfm2,
    kLatentAttention, kGraniteExperts;
// Latent attention whose kv_b_proj is one tensor.
extern const GgufNames kWholeLatentAttention;
// All tensors of GPT-2 but the matrices of its layers, which other families store in other ways.
extern const GgufNames kGpt2;
// Models whose layers are one block of Mamba or Mamba-2 each: what the two have in common.
extern const GgufNames kBackbone;
// Biases of the layer norms before attention and MLP, and after the last layer.
extern const GgufNames kNormBiases;
// All tensors of BERT but its positions.
extern const GgufNames kBert;
// Names of gate.e_score_correction_bias and of shared_experts. They precede the names of other
// experts.
extern const GgufNames kSharedExperts;

// Returns the keys with which many architectures begin, followed by those of this one.
KeyOrder standard_keys(const KeyOrder& more = {});
KeyOrder llama_keys(const KeyOrder& more = {});
KeyOrder granite_keys(const KeyOrder& more = {});
KeyOrder gemma_keys(const KeyOrder& more = {});
KeyOrder deepseek_keys();
KeyOrder bert_keys();

// Tensors for GgufArchitecture::unread.
inline constexpr std::string_view kOutputBias = "blk.{i}.attn_output.bias";
TensorNames attention_biases();  // of q, k and v, and of the output
TensorNames mlp_biases();
TensorNames block_biases();  // of the output of attention, and of the MLP
TensorNames latent_biases();

}  // namespace ferry::converters::gguf_tables
