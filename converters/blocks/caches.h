// KV caches and states, which a decoder keeps between calls. Blocks use no other buffers. A
// stateful program has them as mutable buffers, a static program as inputs and outputs
// (static_ports.h).
#pragma once

#include <optional>
#include <string>

#include "converters/blocks/decoder_context.h"

namespace ferry::converters {

// A buffer [1,context_length,kv_heads,head_dim] of f32, f16 or i8. An i8 cache has buffers of
// scales and zero points too. Positions beyond the last one written hold arbitrary values and must
// not be read.
struct CachedRows {
  ValueId rows;
  std::optional<graph::CodedRows> coded = {};
};

struct KvCache {
  CachedRows keys, values;
};

// Returns the KV cache of attention layer `layer` in a stateful program, after keys and values
// [1,T,kv_heads,head_dim] of this call have been written into it. If keys and values are one value,
// they have one buffer.
KvCache updated_kv_cache(GraphBuilder& b, const DecoderContext& c, int64_t layer, ValueId keys,
                         ValueId values);

// Returns the positions [start, c.cache_end) of a cache, `count` of them, in f32.
ValueId cached(GraphBuilder& b, const DecoderContext& c, const CachedRows& cache,
               const graph::IntArg& start, const Dim& count);

// A state of fixed size, f32.
struct State {
  ValueId before;  // its contents before this call, zeros where the call begins a sequence
  ValueId buffer;  // where the call must write its new contents; invalid: a fresh value
  int64_t layer = 0;
  std::string name;
};

// Returns the state `name` of layer `layer`, such as "recurrent_state".
State state(GraphBuilder& b, const DecoderContext& c, int64_t layer, std::string name, Dims shape);

// Must be called with the new contents of the state. In a stateful program they have been written
// to State::buffer.
void keep(const DecoderContext& c, const State& state, ValueId after);

// Applies a causal depthwise convolution over time, with its state: x [1,T,channels] ->
// [1,channels,T] with the weight layers.N.attention.conv1d.weight (channels, 1, kernel). The state
// conv_state [1,channels,kernel] holds the last `kernel` inputs. That is one more than the
// convolution needs, and is the layout that transformers and ExecuTorch keep.
ValueId causal_conv(GraphBuilder& b, const DecoderContext& c, ValueId x, int64_t layer,
                    int64_t channels, int64_t kernel);

}  // namespace ferry::converters
