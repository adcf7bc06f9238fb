// Executes a checkpoint's model layer by layer, in f32 or f64. The weights of one layer are in
// memory at a time and nothing is written to disk, whatever the size of the model. The execution in
// f64 tells how far an execution in f32 is from the model.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "core/tensor_source.h"
#include "core/thread_pool.h"
#include "graph/graph.h"
#include "graph/lower.h"
#include "plan/conversion.h"
#include "proof/noise.h"
#include "proof/progress.h"
#include "proof/reference.h"
#include "proof/reference_recorder.h"
#include "runner/method.h"

namespace ferry::proof {

// A tensor that one part of the model hands to the next. The key in PassedTensors is the name of
// the output that made the tensor.
struct Passed {
  DType dtype = DType::kF32;
  Shape shape;
  std::vector<std::byte> bytes;
};
using PassedTensors = std::map<std::string, Passed>;

// Returns the attention_end of `count` tokens from `position` on, for a model in which the rows of
// an image attend to each other.
Passed attention_end(const PromptImages& images, int64_t position, int64_t count);

// Fills `out` with bytes of the only output of a weight, from `offset` on. Thread-safe.
using ReadWeight =
    std::function<Status(const graph::Weight& weight, uint64_t offset, std::span<std::byte> out)>;
// Computes weights by their recipes from the source, which must outlive the function.
ReadWeight weights_from(const TensorSource& source);

// One part of a converted model with its weights in memory, ready to be executed.
class LoadedPart {
 public:
  // `name` begins messages. With MethodOptions::f64, tensors that are handed on are f64 too.
  static Result<std::unique_ptr<LoadedPart>> load(const graph::Model& model,
                                                  const ReadWeight& weights, ThreadPool& pool,
                                                  const std::string& name,
                                                  const runner::MethodOptions& options = {});
  const graph::LoweredMethod& lowered() const { return lowered_.methods.front(); }
  runner::Method& method() { return *method_; }

  // Executes the part of a stateful text decoder for `tokens`. `input_pos` is the value of the
  // input of that name. Other inputs are taken from `passed`, and outputs are added to it.
  Status run(std::span<const int64_t> tokens, int64_t input_pos, PassedTensors& passed);

 private:
  Status fill_weights(const graph::Model& model, const ReadWeight& weights, ThreadPool& pool);

  std::string name_;
  bool f64_ = false;
  graph::LoweredProgram lowered_;
  std::vector<std::vector<std::byte>> literals_;
  std::vector<std::unique_ptr<std::byte[]>> weights_;
  std::vector<runner::ExternalTensor> external_;
  pte::LoadedProgram program_;
  std::optional<runner::Method> method_;
};

// Calls use(probe, value, view) for every probe of the part whenever its value is computed. A value
// may have several probes. Earlier observers of these values are replaced.
using UseOfProbe =
    std::function<void(std::string_view probe, int32_t value, const runner::TensorView& view)>;
Status observe_probes(LoadedPart& part, const UseOfProbe& use);

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
