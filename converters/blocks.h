// Blocks that the families share: what a decoder layer is made of, as graph nodes. Shapes are
// [1,T,...] throughout; the layouts are those of the llama:: operators (sequence in dim 1).
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "converters/family.h"
#include "converters/model_config.h"
#include "graph/builder.h"

namespace ferry {

// What every layer needs beside the hidden state; made once, before the first layer.
struct DecoderContext {
  const ModelConfig& config;
  const BuildOptions& options;
  Dim tokens = {};         // T, the number of tokens of a call
  ValueId start_pos = {};  // Int: position of the first token
  ValueId end_pos = {};    // Int: start_pos + T
  ValueId is_start = {};   // bool [], true when the call begins a sequence
  ValueId rope_cos = {},
          rope_sin = {};  // f32 [T,1,rotary_dim]; the first half of rope_sin is negated
  // Sliding window, only where the context is longer than it: the first key that is seen (Int), the
  // number of keys from there, and the additive mask f32 [T, window_keys].
  ValueId window_start = {};
  Dim window_keys = {};
  ValueId window_mask = {};
};

// How an attention block differs between families.
struct AttentionStyle {
  bool qkv_bias = false;
  bool output_bias = false;
  bool qk_norm = false;      // RMSNorm over head_dim before RoPE
  bool output_gate = false;  // wq gives [query | gate] per head; out *= sigmoid(gate) (Qwen3.5)
};

// x * rsqrt(mean(x^2) + eps) * w over the last dimension. Families with (1 + w) norms add the 1
// when the weight is packed.
ValueId rms_norm(GraphBuilder& b, ValueId x, const std::string& weight, double eps);

// Linear with weight NAME.weight and, if asked for, NAME.bias added in f32.
ValueId projection(GraphBuilder& b, ValueId x, const std::string& name, int64_t in, int64_t out,
                   bool bias);

// Causal attention with KV cache; `prefix` is "layers.N.attention".
ValueId attention(GraphBuilder& b, const DecoderContext& c, ValueId x, const std::string& prefix,
                  const AttentionStyle& style, bool sliding);

// Gated DeltaNet with convolution and recurrent state; `prefix` is "layers.N.attention".
ValueId gated_delta_net(GraphBuilder& b, const DecoderContext& c, ValueId x,
                        const std::string& prefix);

// w2(silu(w1 x) * w3 x); `prefix` is "layers.N.feed_forward".
ValueId gated_mlp(GraphBuilder& b, const ModelConfig& config, ValueId x, const std::string& prefix);

// The frame of a pre-norm decoder: embedding, per layer x += mixer(norm x), x += mlp(norm x), final
// norm and head, with the probes that reference files name. `mixer` gets the layer's index.
using Mixer =
    std::function<ValueId(GraphBuilder&, const DecoderContext&, ValueId x, int64_t layer)>;
Result<Graph> build_decoder(const ModelConfig& config, const BuildOptions& options,
                            const Mixer& mixer);

// The same with attention in every layer, windowed where the config's layer_types say so.
Result<Graph> build_attention_decoder(const ModelConfig& config, const BuildOptions& options,
                                      const AttentionStyle& style);

// "layers.3.attention"
std::string layer_name(int64_t layer, const char* part);

}  // namespace ferry
