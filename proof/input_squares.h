// measure_input_squares() executes a model on a text, and adds up the squares of what each column
// of each matrix is multiplied with. An importance matrix is made of the sums.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "core/result.h"
#include "core/thread_pool.h"
#include "plan/conversion.h"
#include "proof/progress.h"
#include "proof/prompts.h"

namespace ferry::proof {

struct InputSquares {
  // The sum for each column of each matrix, one matrix after the other. A weight of experts has a
  // matrix for each of them, other weights have one.
  std::vector<float> sums;
  std::vector<float> counts;  // how many tokens each matrix was multiplied with
};

// Executes the text model in f32, layer by layer, with the weights of one layer in memory. The keys
// are names of weights: those of linear layers and of experts. Experts count the tokens that the
// routers send them. Results do not depend on the number of threads, and are the same on every x86
// processor with AVX2 (kernels/common_target.h). kBadInput for values that are not finite.
Result<std::map<std::string, InputSquares>> measure_input_squares(
    const plan::ConvertOptions& options, const Prompts& sequences, ThreadPool& pool,
    const Progress& progress = {});

}  // namespace ferry::proof
