// build_audio_encoder() makes the graph of an audio encoder: what audio_front() makes of sound,
// layers in which all rows attend to each other, and the keys and values of the decoder's
// cross-attention, or rows of the decoder. AudioConfig describes the structure.
#pragma once

#include "converters/blocks/blocks.h"
#include "converters/build_options.h"

namespace ferry::converters {

// forward(input_features f32 [1,mel_bins,frames] or input_values f32 [1,samples]) -> cross_k_N and
// cross_v_N f32 [1,rows,heads,head_dim] for every layer N of the decoder. `config.audio` must be
// set. With AudioConfig::to_rows the output is audio_features f32
// [1,rows / group,hidden_size] instead. Probes are encoder_hidden_states.N, the inputs of the
// layers, and encoder_last_hidden_state, all [1,rows,hidden_size]. An encoder of Gemma 4 is that of
// gemma4_audio.h.
Result<Methods> build_audio_encoder(const ModelConfig& config, const BuildOptions& options);

}  // namespace ferry::converters
