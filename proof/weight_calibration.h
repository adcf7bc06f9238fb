// calibrate_weights() chooses the codes of quantised linear weights for the least error of their
// layers' outputs, on the inputs that tokens of a text give (calibration/code_search.h).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/result.h"
#include "core/thread_pool.h"
#include "graph/passes/quantize_weights.h"
#include "plan/conversion.h"
#include "proof/linear_inputs.h"
#include "proof/progress.h"
#include "proof/sequences.h"
#include "proof/weight_costs.h"

namespace ferry::proof {

// The model is executed layer by layer. The inputs of a layer are computed by the earlier layers as
// they are quantised, and an activation is rounded to 8 bits if the program rounds it wherever it
// reads it. The weights of one layer, their second moments, the hidden states of all sequences and
// the chosen codes are in memory. Results do not depend on the number of threads, and are the same
// on every x86 processor with AVX2 (kernels/common_target.h).
//
// Calibrated are the matrices of linear nodes and of routed experts that `options` give codes, of
// text decoders and encoders, and of vision encoders if there are images. A vision encoder is one
// part: the inputs of its layers are computed with the weights in f32. Embeddings keep the codes of
// quantize_rows(). No sequence may be longer than the context. kUsage if nothing is quantised, and
// for single-head attention.
//
// The result also says what the codes cost, and the nearest ones: measured for text decoders, on
// the one sequence in 16 that nothing is calibrated with. If the nearest codes cost less, they
// stay.
Result<std::shared_ptr<const graph::CalibratedWeights>> calibrate_weights(
    const plan::ConvertOptions& options, const Sequences& sequences, ThreadPool& pool,
    const Progress& progress = {});

// Returns a line that says what the codes of compared weights cost.
std::string line_of(const graph::CalibratedWeights& compared);

struct MeasuredCosts {
  std::vector<MatrixCost> matrices;                        // in the order of the model
  std::vector<LinearInput> smoothed;                       // the activations that have factors
  std::shared_ptr<const graph::CalibratedWeights> chosen;  // by the calibration
};

// Calibrates like calibrate_weights(), and measures what the codes of each matrix cost. `options`
// give the schemes that matrices have meanwhile; `alternatives` are those for which errors are
// compared, where their groups divide the rows. kUsage also for encoders.
Result<MeasuredCosts> measure_costs(const plan::ConvertOptions& options, const Sequences& sequences,
                                    std::vector<graph::LinearQuantization> alternatives,
                                    ThreadPool& pool, const Progress& progress = {});

}  // namespace ferry::proof
