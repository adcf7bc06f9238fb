// build_gemma4_audio() makes the graph of an audio encoder of Gemma 4: two convolutions over time
// and mel bins, layers of two half MLPs around attention to near rows and a convolution over time,
// a linear, and what makes rows of the text decoder: an RMS norm and one linear.
// AudioConfig::gemma4 describes the structure. Source: transformers,
// models/gemma4/modeling_gemma4.py.
#pragma once

#include "converters/blocks/blocks.h"
#include "converters/build_options.h"

namespace ferry::converters {

// forward(input_features f32 [1,F,mel_bins]) -> audio_features f32 [1,N,hidden_size], N = F / 4
// rounded up. F is any number of frames up to options.sound_frames, without padding: in the
// reference a frame that the mask hides has no effect on the rows that the mask shows. Probes are
// encoder_hidden_states.N, the inputs of the layers, f32 [1,N,width], and
// encoder_last_hidden_state, f32 [1,N,output_size].
Result<Methods> build_gemma4_audio(const ModelConfig& config, const BuildOptions& options);

// The frames that become one row.
inline constexpr int64_t kGemma4RowFrames = 4;

}  // namespace ferry::converters
