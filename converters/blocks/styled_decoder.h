// build_styled_decoder() makes decoders that a few choices describe: the kind of norms, where
// residuals are added, the form of the MLP. The weights have the names that build_decoder() gives
// them.
#pragma once

#include "converters/blocks/attention.h"
#include "converters/blocks/blocks.h"
#include "converters/build_options.h"

namespace ferry::converters {

// How a layer adds its blocks to its input x. `norm1` is attention_norm, `norm2` is ffn_norm.
enum class Residuals {
  kInTurn,      // x += attention(norm1(x)), then x += mlp(norm2(x))
  kSideBySide,  // x += attention(norm1(x)) + mlp(norm2(x))
  kOneNorm,     // x += attention(n) + mlp(n), where n is norm1(x)
  kNormAfter    // x = norm1(x + attention(x)), then x = norm2(x + mlp(x))
};

// A member of ModelConfig::numbers: 1 where attention and MLP are added side by side, in families
// whose config has a flag for it.
inline constexpr const char* kParallelResidual = "parallel_residual";

struct DecoderStyle {
  AttentionStyle attention = {};
  NormKind norm = NormKind::kLayer;
  Residuals residuals = Residuals::kInTurn;
  bool gated = false;     // the MLP multiplies by a gate; config.mlp_bias then states its biases
  bool mlp_bias = false;  // an MLP without a gate has biases
  bool head_bias = false;
  bool final_norm = true;
  bool learned_positions = false;  // position_embeddings.weight [max_positions, hidden_size]
  // Width of a token's embedding and of the input of the head. project_in and project_out stand
  // between this width and the layers. 0 or hidden_size: there are no projections.
  int64_t embedding_size = 0;
};

Result<Methods> build_styled_decoder(const ModelConfig& config, const BuildOptions& options,
                                     const DecoderStyle& style);

}  // namespace ferry::converters
