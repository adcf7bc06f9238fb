// The f32 path: what a checkpoint's model computes in f32, executed layer by layer. One layer's
// weights are in memory at a time and nothing is written to disk, whatever the size of the model.
// An execution in f64 says how far from the model one in f32 is.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/result.h"
#include "core/tensor_source.h"
#include "core/thread_pool.h"
#include "plan/conversion.h"
#include "proof/loaded_part.h"
#include "proof/noise.h"
#include "proof/progress.h"
#include "proof/reference.h"
#include "proof/reference_recorder.h"

namespace ferry::proof {

// `conversion` is planned in f32 with logits of all positions, in as many parts as it has layers;
// its prefill length is at least that of the longest prompt with its continuation. The result holds
// the tensors of docs/verifying.md for every prompt: logits, hidden states, caches after the
// prompt, routers, the continuation as greedy_ids and its greedy_logits. `name` is what messages
// call it. Every prompt runs twice: in one call, and, unless told otherwise, in several, because
// what continues a sequence is another path through a program than what begins one. An encoder has
// one call for a text, and last_hidden_state and sentence_embedding in place of logits.
struct F32Outputs {
  std::unique_ptr<TensorSource> one_call, several_calls;  // the second may be nullptr
};
struct F32PathOptions {
  bool in_several_calls = true;
  bool f64 = false;                      // compute in f64; results are rounded to f32 at the end
  std::optional<uint64_t> disturb = {};  // as MethodOptions::disturb
  // Send tokens through RecordedPrompt::routes; else the routers choose.
  bool follow_routes = false;
  ReadWeight weights = {};  // f32 values; empty: what the recipes make of the source
  Progress progress = {};   // bytes of weights whose layers are done
};
Result<F32Outputs> run_f32_path(const plan::Conversion& conversion,
                                const std::vector<RecordedPrompt>& prompts, const std::string& name,
                                ThreadPool& pool, const F32PathOptions& options = {});

// The same model in f64, and how far executions in f32 are from it.
struct PathNoise {
  std::unique_ptr<TensorSource> in_f64;
  std::shared_ptr<const NoiseModel> noise;
};
// `in_f32` is what run_f32_path() gave for the same prompts in one call, with the same `weights`.
// The model is executed in f64, and once more in f32 with its norms disturbed by a unit in the last
// place; tokens pass through the experts that they passed through in `in_f32`. Several calls are no
// measure of noise: where they are wrong, they would hide it.
Result<PathNoise> measure_noise(const plan::Conversion& conversion,
                                std::vector<RecordedPrompt> prompts, const Reference& in_f32,
                                const ReadWeight& weights, ThreadPool& pool,
                                const Progress& progress);

}  // namespace ferry::proof
