// The slots of caches with an attention sink (core/attention_sink.h), and who attends to them.
//
// Position p has the slot p in the sink, and sink + (p - sink) mod ring behind it. RoPE turns by
// the slot, not by the position, as the official form does: angles stay those of a short text. With
// AttentionSink::rope_turn it turns by a place in a longer circle, so that the distances of a
// window are true until the circle ends. The program derives what each slot holds from the end of
// the call, so that it needs no state for it.
#pragma once

#include "converters/blocks/decoder_context.h"

namespace ferry::converters {

// Sets the slots of the call's tokens, the end of the written slots, and the mask of all layers.
// Needs start_pos, end_pos and tokens.
void add_ring(GraphBuilder& b, DecoderContext& c);

}  // namespace ferry::converters
