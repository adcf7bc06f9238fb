// Executes a checkpoint's model layer by layer, in f32 or f64. The weights of one layer are in
// memory at a time and nothing is written to disk, whatever the size of the model. The execution in
// f64 tells how far an execution in f32 is from the model.
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

// Returns the attention_end of `count` tokens from `position` on, for a model in which the rows of
// an image attend to each other.
Passed attention_end(const PromptImages& images, int64_t position, int64_t count);

// `conversion` is planned in f32 with logits of all positions and one part per layer. Its prefill
// length must fit the longest prompt with its continuation. The result has the tensors of
// docs/verifying.md for every prompt: logits, hidden states, caches after the prompt, routers, the
// continuation as greedy_ids, and its greedy_logits. Messages call the result `name`. Every prompt
// runs in one call and, unless the options say otherwise, once more in several calls, because
// continuing a sequence takes another path through a program than beginning one. An encoder runs
// each text in one call, and has last_hidden_state and sentence_embedding in place of logits.
struct ExecutionOutputs {
  std::unique_ptr<TensorSource> one_call, several_calls;  // `several_calls` may be nullptr
};
struct ExecutionOptions {
  bool in_several_calls = true;
  bool f64 = false;                      // compute in f64; results are rounded to f32 at the end
  std::optional<uint64_t> disturb = {};  // see MethodOptions::disturb
  // Sends tokens through RecordedPrompt::routes; otherwise the routers choose.
  bool follow_routes = false;
  ReadWeight weights = {};  // reads f32 values; empty: the recipes compute them
  Progress progress = {};   // counts bytes of the weights of finished layers
};
Result<ExecutionOutputs> execute_checkpoint(const plan::Conversion& conversion,
                                            const std::vector<RecordedPrompt>& prompts,
                                            const std::string& name, ThreadPool& pool,
                                            const ExecutionOptions& options = {});

// The outputs of an execution in f64, and the distance of executions in f32 from them.
struct ExecutionNoise {
  std::unique_ptr<TensorSource> in_f64;
  std::shared_ptr<const NoiseModel> noise;
};
// `in_f32` is the result of execute_checkpoint() for these prompts in one call, with these
// `weights`. The model is executed in f64, and again in f32 with its norms disturbed by a unit in
// the last place. Tokens pass through the experts of `in_f32`. Executions in several calls do not
// count as noise, because noise would then hide their errors.
Result<ExecutionNoise> measure_noise(const plan::Conversion& conversion,
                                     std::vector<RecordedPrompt> prompts, const Reference& in_f32,
                                     const ReadWeight& weights, ThreadPool& pool,
                                     const Progress& progress);

}  // namespace ferry::proof
