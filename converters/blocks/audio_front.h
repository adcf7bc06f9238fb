// The part of an audio encoder before its layers: audio_front() makes the input of a program for
// sound, and the rows that the first layer takes. AudioConfig says which kind of input it is.
#pragma once

#include "converters/blocks/blocks.h"
#include "converters/blocks/decoder_context.h"
#include "converters/build_options.h"

namespace ferry::converters {

struct AudioRows {
  ValueId x;            // f32 [1,count,hidden_size]
  Dim count;            // static for frames, dynamic for samples
  RopeTable rope = {};  // invalid where positions are learned
};

// Log-mel frames: input_features f32 [1,mel_bins,frames], two convolutions and learned positions.
// Samples: input_values f32 [1,samples] of any number up to options.sound_samples, three
// convolutions, of which tanh and a norm of all values follow the first.
AudioRows audio_front(GraphBuilder& b, const ModelConfig& config, const BuildOptions& options);

// Returns how many rows the three convolutions make of samples; 0 if they are too few.
int64_t rows_of_samples(int64_t samples);

}  // namespace ferry::converters
