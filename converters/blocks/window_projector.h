// project_windows() makes rows of the text decoder of windows of states by a Q-Former: learned
// queries attend to each other and to the states of a window. Source: transformers,
// models/blip_2/modeling_blip_2.py, and models/granite_speech/modeling_granite_speech.py,
// GraniteSpeechEncoderProjector.
#pragma once

#include "converters/blocks/row_blocks.h"

namespace ferry::converters {

// `states` is f32 [1,F,size], whose rows are those of `windows`: blocks of `config.window` rows.
// The last window is filled up with zeros, to which queries attend too. Returns f32 [1,N,`width`]
// with `config.queries` rows for each window.
ValueId project_windows(GraphBuilder& b, const WindowProjectorConfig& config,
                        const RowBlocks& windows, ValueId states, int64_t size, int64_t width);

}  // namespace ferry::converters
