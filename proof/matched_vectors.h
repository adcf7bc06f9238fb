// Finds the checkpoint's vectors, which are weights of norms and biases, in a program of another
// tool, by their values. A norm that is wrong by a few per cent hides in the error of quantised
// caches.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/result.h"
#include "plan/conversion.h"
#include "proof/program_constants.h"

namespace ferry::proof {

struct MatchedVectors {
  uint64_t vectors = 0, found = 0;  // vectors of the model, and those that the program has
  // One line for each vector that the program has with other values, that it lacks though it has
  // most others of the kind, or that it reads in another order of layers.
  std::vector<std::string> different = {};
};

// A vector is found if the program has its values, rounded to the program's dtype, and for norms
// that multiply by 1 + w either w or 1 + w. Vectors that a tool has merged into other weights are
// not found, and nothing is said of them. `layers` is planned by plan_f32_layers().
Result<MatchedVectors> match_vectors(const std::vector<ProgramVector>& constants,
                                     const plan::Conversion& layers);

}  // namespace ferry::proof
