// The noise of a bundle's own program: how far an execution in f32 is from one in f64, or from
// others that differ by one unit in the last place of its norm weights.
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
  std::optional<uint64_t> memory = {};  // bytes that planned memory may have
  runner::DecodeOptions decode = {};
};

// For executions with activations in f32 (MethodOptions::widen where they are not), against f64:
// one as it is, and one with its norms disturbed by a unit in the last place. The tokens pass
// through the experts that the execution in f32 chooses, or those of the prompts. kUnsupported for
// programs with delegates.
Result<std::shared_ptr<const NoiseModel>> f32_noise(const packer::Bundle& bundle,
                                                    std::vector<RecordedPrompt> prompts,
                                                    const BundleNoiseOptions& options,
                                                    ThreadPool& pool);

// Noise of programs with delegates, which f64 does not execute: `exact` is such an execution,
// and the others are disturbed. Their tokens pass through the experts of `exact`. Programs that
// round activations have no such noise as they are: whether a disturbance changes any rounded value
// of the first layers is chance.
Result<std::shared_ptr<const NoiseModel>> disturbed_noise(const packer::Bundle& bundle,
                                                          const Reference& exact,
                                                          std::vector<RecordedPrompt> prompts,
                                                          const BundleNoiseOptions& options,
                                                          ThreadPool& pool);

// Gives the prompts the experts that `recorded` says their tokens passed through.
Status follow_routes(const Reference& recorded, int64_t layers,
                     std::vector<RecordedPrompt>& prompts);

}  // namespace ferry::proof
