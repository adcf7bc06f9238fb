// build_decoder() and its variants make the graph of a decoder, with the probes that reference
// files name. build_styled_decoder() makes decoders that a few choices describe: the kind of norms,
// where residuals are added, the form of the MLP. The weights have the names that build_decoder()
// gives them.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "converters/blocks/attention.h"
#include "converters/blocks/blocks.h"
#include "converters/blocks/decoder_context.h"
#include "converters/build_options.h"
#include "converters/keys/key_rule.h"

namespace ferry::converters {

// One layer: x [1,T,hidden_size] -> the same.
using Layer =
    std::function<ValueId(GraphBuilder&, const DecoderContext&, ValueId x, int64_t layer)>;

struct DecoderParts {
  Layer layer;
  std::function<ValueId(GraphBuilder&, ValueId x)> final_norm;
  bool head_bias = false;
  // Changes the embeddings of tokens before the first layer, if set.
  std::function<ValueId(GraphBuilder&, const DecoderContext&, ValueId x)> enter = nullptr;
  // The width of a token's embedding and of the result of `final_norm`; 0 means hidden_size.
  int64_t embedding_size = 0;
  int64_t state_size = 0;    // the width of the result of `final_norm` alone, where it is another
  bool token_types = false;  // a classifier takes the types of tokens, which tell pairs apart
};

// Builds embedding, layers, final norm and head, with the multipliers and the softcap of
// config.scalars. A stateful program has one method: forward(tokens i64 [1,T], input_pos i64 [1])
// -> logits. A static program has two, kv_forward and prefill_forward, with the inputs and outputs
// of static_ports.h. An encoder has one, forward(tokens i64 [1,T]) -> last_hidden_state, and the
// outputs of config.sentence or config.classifier. Where the config has a vision tower, embeddings
// f32 [1,T,hidden_size] take the place of tokens.
Result<Methods> build_frame(const ModelConfig& config, const BuildOptions& options,
                            const DecoderParts& parts);

// Returns the embeddings of tokens, [1,T,width], with the multiplier of config.scalars.
ValueId embed(GraphBuilder& b, const ModelConfig& config, ValueId tokens, int64_t width);
// embed() with another table, [N,width], of which `tokens` i64 are rows.
ValueId embedded(GraphBuilder& b, const ModelConfig& config, ValueId table, ValueId tokens);

// Builds the embedding as a component of its own: tokens [1,T] -> embeddings f32 [1,T,hidden_size].
// It has one method for each method of the decoder.
Result<Methods> build_token_embedding(const ModelConfig& config, const BuildOptions& options);

// The token mixer of a layer (attention, convolution, ...): normed x [1,T,hidden_size] -> the same
// shape, to be added to the residual stream.
using Mixer =
    std::function<ValueId(GraphBuilder&, const DecoderContext&, ValueId x, int64_t layer)>;

// Where a layer normalises the inputs and outputs of its two blocks.
struct NormStyle {
  bool before = true;  // attention_norm, ffn_norm
  bool after = false;  // post_attention_norm, post_ffn_norm
};

// Builds layers of x += mixer(x), x += mlp(x), with RMS norms before and after each block as
// `norms` says.
Result<Methods> build_decoder(const ModelConfig& config, const BuildOptions& options,
                              const Mixer& mixer, NormStyle norms = {});

// Builds a decoder with attention in every layer.
Result<Methods> build_attention_decoder(const ModelConfig& config, const BuildOptions& options,
                                        const AttentionStyle& style, NormStyle norms = {});

// Builds a decoder with attention where the config has it, and `other` in all other layers.
Result<Methods> build_mixed_decoder(const ModelConfig& config, const BuildOptions& options,
                                    const AttentionStyle& style, const Mixer& other);

// Builds layers of x += mixer(x) alone, with the RMS norm attention_norm before each.
Result<Methods> build_single_blocks(const ModelConfig& config, const BuildOptions& options,
                                    const Mixer& mixer);

// Returns the sum over the chosen experts of score * expert(x), plus sigmoid(gate x) * shared(x),
// or plus shared(x) where the shared expert has no gate. x is [1,T,hidden], `prefix` is
// "layers.N.feed_forward". The router and the shared gate are f32 in any bundle. The router reads
// `routed_by`, if that is valid, in place of x.
ValueId sparse_mlp(GraphBuilder& b, const DecoderContext& c, ValueId x, int64_t layer,
                   const std::string& prefix, ValueId routed_by = {});

// Key rules and graph of families with Llama's architecture, which differ only in config values
// such as multipliers and layers without RoPE. The config says which biases there are.
std::vector<KeyRule> llama_rules(const ModelConfig& config, const std::string& prefix);
Result<Methods> build_llama(const ModelConfig& config, const BuildOptions& options);

// How a layer adds its blocks to its input x. `norm1` is attention_norm, `norm2` is ffn_norm.
enum class Residuals {
  kInTurn,      // x += attention(norm1(x)), then x += mlp(norm2(x))
  kSideBySide,  // x += attention(norm1(x)) + mlp(norm2(x))
  kOneNorm,     // x += attention(n) + mlp(n), where n is norm1(x)
  // x += post_norm1(attention(norm1(x))), then the same with the MLP and norm2; post_norm1 is
  // post_attention_norm, post_norm2 post_ffn_norm
  kNormsAround,
  kNormAfter,  // x = norm1(x + attention(x)), then x = norm2(x + mlp(x))
  kOfNorm      // x = n + attention(n), where n is norm1(x), then the same with the MLP and norm2
};

// A member of ModelConfig::numbers: 1 where attention and MLP are added side by side, in families
// whose config has a flag for it.
inline constexpr const char* kParallelResidual = "parallel_residual";

// A member of ModelConfig::numbers: 1 where the head of build_decoder() has a bias.
inline constexpr const char* kHeadBias = "head_bias";

// The reason why tensors of the head of an encoder are dropped.
inline constexpr const char* kEncoderHead = "head: an encoder gives states";

// A member of ModelConfig::numbers: the position that has no sinusoids, or -1.
inline constexpr const char* kPlainPosition = "plain_position";

struct DecoderStyle {
  AttentionStyle attention = {};
  NormKind norm = NormKind::kLayer;
  Residuals residuals = Residuals::kInTurn;
  bool gated = false;     // the MLP multiplies by a gate; config.mlp_bias then states its biases
  bool mlp_bias = false;  // an MLP without a gate has biases
  bool head_bias = false;
  bool final_norm = true;
  bool first_bare = false;         // the first layer has no attention_norm (ModernBERT)
  bool learned_positions = false;  // position_embeddings.weight [max_positions, hidden_size]
  // Sines and cosines of the position are added to the embeddings, but for those of position
  // kPlainPosition (XGLM).
  bool sinusoids = false;
  // A table of sines and cosines of the position is added to the embeddings (Marian).
  bool sine_table = false;
  // Positions count the tokens that are not this one, from 1 on; its own is 0 (RoBERTa). The table
  // of positions then has one row more.
  std::optional<int64_t> uncounted = {};
  // The first row of token_types.weight [kTokenTypes, hidden_size] is added to all embeddings; in
  // classifiers, which take pairs of texts, the row of the token's type.
  bool token_types = false;
  bool embedding_norm = false;  // embedding_norm, behind token types and positions
  // Every layer attends to the rows of an encoder between attention and MLP, with the norm
  // cross_norm: before it for Residuals::kInTurn and kNormsAround, which has post_cross_norm too,
  // behind it for kNormAfter.
  bool cross_attention = false;
  Mixer mixer = nullptr;  // takes the place of `attention`, if set
  // Width of a token's embedding and of the input of the head. project_in and project_out stand
  // between this width and the layers. 0 or hidden_size: there are no projections.
  int64_t embedding_size = 0;
};

// `config` must outlive the layers.
DecoderParts styled_parts(const ModelConfig& config, const DecoderStyle& style);
Result<Methods> build_styled_decoder(const ModelConfig& config, const BuildOptions& options,
                                     const DecoderStyle& style);

}  // namespace ferry::converters
