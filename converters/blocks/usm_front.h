// usm_front() makes the rows that the first layer of an audio encoder of Gemma 3n or 4 takes: two
// convolutions over time and mel bins, each with a norm and a ReLU, and a linear. Source:
// transformers, models/gemma4/modeling_gemma4.py and models/gemma3n/modeling_gemma3n.py.
#pragma once

#include "converters/blocks/blocks.h"

namespace ferry::converters {

struct UsmRows {
  ValueId x;       // f32 [1,count,width]
  Dim count;       // dynamic
  ValueId number;  // the Int value of `count`
};

// `frames` is f32 [1,F,mel_bins]; F must be bound. UsmAudioConfig describes the convolutions.
UsmRows usm_front(GraphBuilder& b, const ModelConfig& config, ValueId frames);

// Returns every `step`-th row of x f32 [1,N,width], the first one included.
ValueId every_row(GraphBuilder& b, ValueId x, int64_t step, int64_t width);

}  // namespace ferry::converters
