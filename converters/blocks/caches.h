// KV caches and states, which a decoder keeps between calls. Blocks use no other buffers. In the
// stateful style they are mutable buffers of the program, in the static style its inputs and
// outputs (static_ports.h).
#pragma once

#include <optional>
#include <string>

#include "converters/blocks/decoder_context.h"

namespace ferry::converters {

// One buffer [1,context_length,kv_heads,head_dim], f32, f16 or i8; of i8 with buffers of its scales
// and zero points. Positions beyond the last one written hold arbitrary values and must not be
// read.
struct CachedRows {
  ValueId rows;
  std::optional<graph::CodedRows> coded = {};
};

struct KvCache {
  CachedRows keys, values;
};

// The KV cache of attention layer `layer` in the stateful style, after keys and values
// [1,T,kv_heads,head_dim] of this call have been written into it. Keys and values that are one
// value have one buffer.
KvCache updated_kv_cache(GraphBuilder& b, const DecoderContext& c, int64_t layer, ValueId keys,
                         ValueId values);

// The positions [start, c.end_pos), `count` of them, in f32.
ValueId cached(GraphBuilder& b, const DecoderContext& c, const CachedRows& cache,
               const graph::IntArg& start, const Dim& count);

// A state of fixed size, f32.
struct State {
  ValueId before;  // its contents before this call, zeros where the call begins a sequence
  ValueId buffer;  // where the call must write its new contents; invalid: a fresh value
  int64_t layer = 0;
  std::string name;
};

// `name` is that of one state of the layer: "recurrent_state".
State state(GraphBuilder& b, const DecoderContext& c, int64_t layer, std::string name, Dims shape);

// To be called with the new contents, which have been written to State::buffer.
void keep(const DecoderContext& c, const State& state, ValueId after);

// A causal depthwise convolution over time, with its state: x [1,T,channels] -> [1,channels,T] with
// weight layers.N.attention.conv1d.weight (channels, 1, kernel). State conv_state
// [1,channels,kernel] holds the last `kernel` inputs, one more than the convolution needs: the
// layout that transformers and ExecuTorch keep.
ValueId causal_conv(GraphBuilder& b, const DecoderContext& c, ValueId x, int64_t layer,
                    int64_t channels, int64_t kernel);

}  // namespace ferry::converters
