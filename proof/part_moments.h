// PartMoments are the second moments of what the calibrated matrices of one part of a model read.
#pragma once

#include <cstddef>
#include <functional>
#include <string_view>
#include <vector>

#include "calibration/moments.h"
#include "core/result.h"
#include "core/thread_pool.h"
#include "proof/checkpoint_execution.h"
#include "proof/linear_inputs.h"
#include "proof/sequences.h"

namespace ferry::proof {

struct ExpertMoments {
  std::vector<calibration::Moments> x, inner;  // for each expert: what w1 and w3 read, and w2
};
struct PartMoments {
  std::vector<calibration::Moments> inputs;  // for each LinearInput
  std::vector<ExpertMoments> experts;        // for each node of experts
};

// kIo if moments of these inputs do not fit into the available memory.
Status check_memory_of_moments(const std::vector<LinearInput>& inputs,
                               const std::vector<ExpertMatrices>& experts);

// Executes a part of the component `role` for every sequence. `states` holds what earlier parts
// gave, and stays as it is.
// `prepare` changes rows of an input before they are added. An expert gets the tokens that are sent
// to it, and one token in 16 wherever it is sent: so every expert has inputs.
using PrepareInput = std::function<void(size_t input, std::vector<float>& rows)>;
Result<PartMoments> measure_moments(LoadedPart& part, std::string_view role,
                                    const std::vector<LinearInput>& inputs, ExpertInputs& experts,
                                    const Sequences& sequences,
                                    const std::vector<PassedTensors>& states,
                                    const PrepareInput& prepare, ThreadPool& pool);

}  // namespace ferry::proof
