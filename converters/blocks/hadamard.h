// hadamard_rotation: the rotation R3 of queries and keys (SpinQuant, arXiv 2405.16406). It changes
// no score, and spreads outliers of a head over all of its elements before keys are quantised.
#pragma once

#include "converters/blocks/graph_names.h"

namespace ferry::converters {

// x [...,D] times the Hadamard matrix of D rows (Sylvester's) over sqrt(D), which is symmetric and
// orthonormal. D is a power of two.
ValueId hadamard_rotation(GraphBuilder& b, ValueId x);

}  // namespace ferry::converters
