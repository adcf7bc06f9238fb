// build_source_encoder() makes the graph of the text encoder of an encoder-decoder: layers in which
// all tokens attend to each other, and the keys and values of the decoder's cross-attention.
#pragma once

#include "converters/blocks/decoder.h"
#include "converters/build_options.h"

namespace ferry::converters {

// The names of the encoder's weights follow this prefix.
inline constexpr const char* kSourcePrefix = "source.";

// forward(source_ids i64 [1,S]) -> cross_k_N and cross_v_N f32 [1,S,kv_heads,head_dim] for every
// layer N of the decoder. `config.source` must be set. `style` is that of the layers, without
// cross-attention. Probes are encoder_hidden_states.N, the inputs of the layers, and
// encoder_last_hidden_state, all [1,S,hidden_size].
Result<Methods> build_source_encoder(const ModelConfig& config, const BuildOptions& options,
                                     const DecoderStyle& style);

}  // namespace ferry::converters
