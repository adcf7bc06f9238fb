// Attention of static programs, composed of core operators over the cache and the tokens of the
// call, with the masks that the caller gives. Source: ExecuTorch, examples/qualcomm/oss_scripts/
// llama/model/static_llama.py, LlamaAttention.
#pragma once

#include "converters/blocks/decoder_context.h"

namespace ferry::converters {

// query [1,A,H,D], keys and values [1,A,G,D] of this call -> [1,A,H,D]. Scores are scaled, capped
// where the model has a softcap, masked as BuildOptions::softmax says. Only in the static style:
// c.ports is set.
ValueId static_attention(GraphBuilder& b, const DecoderContext& c, int64_t layer, ValueId query,
                         ValueId keys, ValueId values);

// The same over keys and values that StaticPorts::extend() has given.
ValueId static_attend(GraphBuilder& b, const DecoderContext& c, int64_t layer, ValueId query,
                      ValueId all_keys, ValueId all_values);

}  // namespace ferry::converters
