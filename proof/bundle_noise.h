// Measures the noise of a bundle's own program: the distance of an execution in f32 from one in
// f64, or from executions whose norm weights differ by one unit in the last place.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "core/result.h"
#include "core/thread_pool.h"
#include "packer/bundle_reader.h"
#include "proof/noise.h"
#include "proof/reference_recorder.h"
#include "runner/decoder.h"

namespace ferry::proof {

struct BundleNoiseOptions {
  std::optional<uint64_t> memory = {};  // limit of planned memory in bytes
  runner::DecodeOptions decode = {};
};

// Measures noise against f64 for executions with f32 activations (MethodOptions::widen if the
// program rounds them). Two executions are compared with f64: an undisturbed one, and one whose
// norms are disturbed by a unit in the last place. Tokens pass through the experts that the
// execution in f32 chooses, or through those of the prompts. kUnsupported for programs with
// delegates.
Result<std::shared_ptr<const NoiseModel>> f32_noise(const packer::Bundle& bundle,
                                                    std::vector<RecordedPrompt> prompts,
                                                    const BundleNoiseOptions& options,
                                                    ThreadPool& pool);

// Measures noise of programs with delegates, which cannot be executed in f64. `exact` is an
// undisturbed execution, and the others are disturbed; their tokens pass through the experts of
// `exact`. This noise is no measure for programs that round activations: it is chance whether a
// disturbance changes any rounded value of the first layers.
Result<std::shared_ptr<const NoiseModel>> disturbed_noise(const packer::Bundle& bundle,
                                                          const Reference& exact,
                                                          std::vector<RecordedPrompt> prompts,
                                                          const BundleNoiseOptions& options,
                                                          ThreadPool& pool);

// Sets the experts of the prompts to those that their tokens passed through in `recorded`.
Status follow_routes(const Reference& recorded, int64_t layers,
                     std::vector<RecordedPrompt>& prompts);

}  // namespace ferry::proof
