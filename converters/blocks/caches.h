// KV caches and states: what a decoder keeps between calls. Blocks use no other buffers, so that
// another program style changes this file alone. In the stateful style they are mutable buffers of
// the program.
#pragma once

#include <string>

#include "converters/blocks/decoder_context.h"

namespace ferry::converters {

// f32 [1,context_length,kv_heads,head_dim] each. Positions beyond the last one written hold
// arbitrary values and must not be read.
struct KvCache {
  ValueId keys, values;
};

// The KV cache of attention layer `layer`, after keys and values [1,T,kv_heads,head_dim] of this
// call have been written into it.
KvCache updated_kv_cache(GraphBuilder& b, const DecoderContext& c, int64_t layer, ValueId keys,
                         ValueId values);

// A state of fixed size, f32.
struct State {
  ValueId before;  // its contents before this call, zeros where the call begins a sequence
  ValueId buffer;  // where the call must write its new contents
};

// `name` is unique in the model: "layers.3.attention.recurrent_state".
State state(GraphBuilder& b, const DecoderContext& c, const std::string& name, Dims shape);

}  // namespace ferry::converters
