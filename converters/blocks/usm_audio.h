// build_usm_audio() makes the graph of an audio encoder of Gemma 3n or 4, which are those of
// Universal Speech Models: two convolutions over time and mel bins, layers of two half MLPs around
// attention to near rows and a convolution over time, and what makes rows of the text decoder. In
// Gemma 4 that is a linear, an RMS norm and a linear; in Gemma 3n every fourth row, a norm, a
// linear and a norm. AudioConfig::usm describes the structure. Source: transformers,
// models/gemma4/modeling_gemma4.py and models/gemma3n/modeling_gemma3n.py.
#pragma once

#include "converters/blocks/blocks.h"
#include "converters/build_options.h"

namespace ferry::converters {

// forward(input_features f32 [1,F,mel_bins]) -> audio_features f32 [1,N,hidden_size]. N is F / 4
// rounded up in Gemma 4, and UsmAudioConfig::gemma3n->rows in Gemma 3n. F is any number of frames
// up to options.sound_frames, without padding: in the reference a frame that the mask hides has no
// effect on the rows that the mask shows in Gemma 4, and one sound of Gemma 3n has no such frame.
// Probes are encoder_hidden_states.N, the inputs of the layers, f32 [1,N,width], and
// encoder_last_hidden_state, f32 [1,N,output_size], in Gemma 3n of the width of layers.
Result<Methods> build_usm_audio(const ModelConfig& config, const BuildOptions& options);

}  // namespace ferry::converters
