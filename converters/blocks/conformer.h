// build_conformer() makes the graph of a FastConformer with a head for CTC: convolutions over time
// and mel bins that make rows of frames, layers of two half MLPs around attention by relative
// positions and a convolution over time, and the outputs of the labels for each row.
// AudioConfig::conformer describes the structure. Source: transformers,
// models/parakeet/modeling_parakeet.py; attention: arXiv 1901.02860, section 3.3.
#pragma once

#include <string>

#include "converters/blocks/blocks.h"
#include "converters/build_options.h"

namespace ferry::converters {

// forward(input_features f32 [1,F,mel_bins]) -> token_logits f32 [1,rows,vocab_size]. F is any
// number of frames up to options.sound_frames, without padding: in the reference a frame that the
// mask hides has no effect on the rows that the mask shows. Probes are encoder_hidden_states.N, the
// inputs of the layers, and encoder_last_hidden_state, all [1,rows,hidden_size].
Result<Methods> build_conformer(const ModelConfig& config, const BuildOptions& options);

// Applies batch norm over the last dimension with the statistics of training, NAME.mean and
// NAME.variance, and NAME.weight and NAME.bias. x is [1,n,size].
ValueId batch_norm(GraphBuilder& b, ValueId x, const std::string& name, int64_t size);

// Returns how many rows the convolutions make of some frames.
int64_t rows_of_frames(const ConformerConfig& config, int64_t frames);

}  // namespace ferry::converters
