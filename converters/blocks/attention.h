// attention: the attention block of a decoder layer. Shapes are [1,T,...], with the
// sequence in dimension 1 as the llama:: operators need it.
#pragma once

#include "converters/blocks/blocks.h"
#include "converters/blocks/decoder_context.h"

namespace ferry::converters {

// How an attention block differs between families.
struct AttentionStyle {
  bool qkv_bias = false;
  bool bare_keys = false;  // wk has no bias, whatever qkv_bias says (Whisper)
  bool output_bias = false;
  enum class QkNorm {
    kNone,
    kHead,         // RMSNorm over head_dim before RoPE
    kWhole,        // RMSNorm over all heads together before RoPE (OLMo 2)
    kAfter,        // RMSNorm over head_dim after RoPE (Hunyuan)
    kAfterBare,    // the same without a weight (nanochat)
    kLayer,        // LayerNorm over head_dim before RoPE (Phi)
    kLayerByHead,  // LayerNorm without bias, with a weight for each head (Cohere, StableLM)
  } qk_norm = QkNorm::kNone;
  bool output_gate = false;  // wq makes [query | gate] per head; out *= sigmoid(gate) (Qwen3.5)
  bool own_gate = false;     // out *= sigmoid(wg x) (AFMoE)
  bool output_norm = false;  // RMSNorm output_norm over all heads, before wo (BitNet)
};

// Attends causally to the KV cache of layer `layer`, after rows of keys and values
// [1,T,kv_heads,head_dim] have been added to it. An encoder attends to those rows alone, causally
// or in both directions. q and the result are [1,T,heads,head_dim]. If keys and values are one
// value, a stateful program has one cache for both.
ValueId attend(GraphBuilder& b, const DecoderContext& c, int64_t layer, ValueId q, ValueId k,
               ValueId v);

// Builds causal attention of layer `layer` with its KV cache. layer_types of the config says
// whether it has a sliding window.
ValueId attention(GraphBuilder& b, const DecoderContext& c, ValueId x, int64_t layer,
                  const AttentionStyle& style);

// Builds cross-attention of layer `layer`: every token attends to all rows that an encoder has made
// keys and values of. They are inputs of the program, cross_k_N and cross_v_N f32
// [1,rows,kv_heads,head_dim], so that they are computed once for a sequence. The config of the
// encoder says which biases there are. x and the result are [1,T,hidden_size].
ValueId cross_attention(GraphBuilder& b, const DecoderContext& c, ValueId x, int64_t layer);
// Builds those keys and values of x [1,rows,width], the output of the encoder, for every
// layer of the decoder, as outputs of the encoder's program.
void cross_keys_and_values(GraphBuilder& b, const ModelConfig& config, ValueId x, Dim rows);

// Applies the rotation R3 to queries or keys (SpinQuant, arXiv 2405.16406). R3 changes no score,
// and spreads outliers of a head over all of its elements before keys are quantised. Returns x
// [...,D] times the Hadamard matrix of D rows (Sylvester's) over sqrt(D), which is symmetric and
// orthonormal. D is a power of two.
ValueId hadamard_rotation(GraphBuilder& b, ValueId x);

// Keys and values of one layer that several layers attend to (Gemma 3n), in the form that the
// program kind needs. Layers that share nothing use attend().
struct HeldRows {
  ValueId keys, values;
};

// Adds rows of keys and values [1,T,kv_heads,head_dim] to the cache of layer `layer`.
HeldRows hold_rows(GraphBuilder& b, const DecoderContext& c, int64_t layer, ValueId keys,
                   ValueId values);

// Attends causally, in layer `layer`, to rows of a layer of the same kind. q and the result are
// [1,T,heads,head_dim].
ValueId attend_held(GraphBuilder& b, const DecoderContext& c, int64_t layer, ValueId q,
                    const HeldRows& rows);

}  // namespace ferry::converters
