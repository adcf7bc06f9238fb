// The f32 path: what a checkpoint's model computes in f32, executed layer by layer. One layer's
// weights are in memory at a time and nothing is written to disk, whatever the size of the model.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/result.h"
#include "core/tensor_source.h"
#include "core/thread_pool.h"
#include "pipeline/convert.h"
#include "pipeline/loaded_part.h"
#include "pipeline/progress.h"
#include "proof/reference_recorder.h"

namespace ferry::pipeline {

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
  ReadWeight weights = {};  // f32 values; empty: what the recipes make of the source
  Progress progress = {};   // bytes of weights whose layers are done
};
Result<F32Outputs> run_f32_path(const Conversion& conversion,
                                const std::vector<proof::RecordedPrompt>& prompts,
                                const std::string& name, ThreadPool& pool,
                                const F32PathOptions& options = {});

}  // namespace ferry::pipeline
