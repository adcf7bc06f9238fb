// LongRoPE (Phi-3, Phi-4-mini): two sets of factors for the rotary frequencies, of which the
// reference takes one by the length of the whole sequence.
// Source: transformers, modeling_rope_utils.py, _compute_longrope_parameters.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "converters/build_options.h"
#include "converters/config/model_config.h"

namespace ferry::converters {

// How many positions a sequence may have for the short factors, where a program has both sets; none
// where it has one: no longrope, equal sets, or a context that long factors are not for.
//
// A call knows the length of the sequence up to its own end only. So a caller that knows the whole
// length says it by the sign of `input_pos`: -1 - position means that the sequence has more
// positions than these, position leaves it to the end of the call.
std::optional<int64_t> longrope_switch(const RopeConfig& rope, const BuildOptions& options);

// For the user: what the program of such a model, `limit` positions before the switch, cannot do
// alone.
std::string longrope_note(int64_t limit, const BuildOptions& options);

}  // namespace ferry::converters
