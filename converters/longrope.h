// LongRoPE (Phi-3, Phi-4-mini): two sets of factors for the rotary frequencies, of which the
// reference takes one by the length of the whole sequence.
// Source: transformers, modeling_rope_utils.py, _compute_longrope_parameters.
#pragma once

#include "converters/family.h"
#include "converters/json_fields.h"
#include "converters/model_config.h"

namespace ferry {

// Fills in the factors of config.rope; sizes, rotary dimensions and original_max_positions must be
// there. `rope` is the rope object of the config.
Status read_longrope(const JsonFields& rope, ModelConfig& config);

// Which factors a program has. A call knows the length of the sequence up to its own end only, so
// it can follow the reference where one call may be longer than original_max_positions; where none
// can, later calls could only disagree with earlier ones, and the context length decides, as in
// ExecuTorch's own export.
enum class LongRopeUse {
  kShort,   // no longrope, or a context that long factors are not for
  kLong,    // a longer context, and calls that are too short to tell
  kByCall,  // both: a call takes the long ones if it ends beyond original_max_positions
};
LongRopeUse longrope_use(const RopeConfig& rope, const BuildOptions& options);

}  // namespace ferry
