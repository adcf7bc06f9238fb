// The frequencies of RoPE, and LongRoPE (Phi-3, Phi-4-mini), which has two sets of factors for
// them: the length of the whole sequence selects one of them. Source: transformers,
// modeling_rope_utils.py.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "converters/build_options.h"
#include "converters/config/model_config.h"

namespace ferry::converters {

// Returns 1 / theta^(2i/rotary_dim) for i in [0, rotary_dim/2), in f32, with the scaling of
// rope.type applied as transformers applies it. Those that proportional RoPE leaves out are 0.
std::vector<float> rope_inverse_frequencies(const RopeConfig& rope, int64_t rotary_dim);

// Returns the maximum length of a sequence with the short factors, in a program that has both sets.
// nullopt if the program has one set: no longrope, equal sets, or a context too short for the long
// factors.
//
// A call knows the length of the sequence only up to its own end. A caller that knows the whole
// length states it by the sign of `input_pos`: -1 - position means that the sequence is longer than
// the maximum. With a plain position, the end of the call decides.
std::optional<int64_t> longrope_switch(const RopeConfig& rope, const BuildOptions& options);

// Returns a note for the user about runners that pass plain positions. `limit` is
// longrope_switch().
std::string longrope_note(int64_t limit, const BuildOptions& options);

}  // namespace ferry::converters
