// build_granite_audio() makes the graph of the audio encoder of Granite Speech: layers of two half
// MLPs around attention within blocks of rows and a convolution over time, probabilities of labels
// that are added to the states in the middle, and a Q-Former that makes rows of the text decoder of
// windows of states. AudioConfig::granite describes the structure. Source: transformers,
// models/granite_speech/modeling_granite_speech.py,
// models/granite_speech_plus/modeling_granite_speech_plus.py and
// models/blip_2/modeling_blip_2.py; attention by distance: arXiv 1803.02155.
#pragma once

#include "converters/blocks/blocks.h"
#include "converters/build_options.h"

namespace ferry::converters {

// forward(input_features f32 [1,F,mel_bins]) -> audio_features f32 [1,N,hidden_size], where F is
// any number of rows of frames up to options.sound_frames, and N that of
// GraniteAudioConfig::rows_of(). Probes are encoder_hidden_states.N, the inputs of the layers, f32
// [1,F,width], and encoder_last_hidden_state, which has the states that the projector takes side by
// side.
Result<Methods> build_granite_audio(const ModelConfig& config, const BuildOptions& options);

}  // namespace ferry::converters
