// Executes a checkpoint's model layer by layer, in f32 or f64. One layer's weights are in memory at
// a time and nothing is written to disk, whatever the size of the model. The execution in f64 says
// how far one in f32 is from the model.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
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

// A tensor that one part of the model hands to the next. PassedTensors has it by the name of the
// output that gives it.
struct Passed {
  DType dtype = DType::kF32;
  Shape shape;
  std::vector<std::byte> bytes;
};
using PassedTensors = std::map<std::string, Passed>;

// Fills `out` with bytes of the only output of a weight, from `offset` on. Thread-safe.
using ReadWeight =
    std::function<Status(const graph::Weight& weight, uint64_t offset, std::span<std::byte> out)>;
// What the recipes make of the source, which must outlive the function.
ReadWeight weights_from(const TensorSource& source);

// One part of a converted model with its weights in memory, ready to execute.
class LoadedPart {
 public:
  // `name` begins messages. With MethodOptions::f64 tensors that are handed on are f64 too.
  static Result<std::unique_ptr<LoadedPart>> load(const graph::Model& model,
                                                  const ReadWeight& weights, ThreadPool& pool,
                                                  const std::string& name,
                                                  const runner::MethodOptions& options = {});
  const graph::LoweredMethod& lowered() const { return lowered_.methods.front(); }
  runner::Method& method() { return *method_; }

  // Executes the part of a stateful text decoder for `tokens`. `input_pos` is the value of that
  // input. Other inputs are taken from `passed`, outputs are put there.
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

// `conversion` is planned in f32 with logits of all positions, in as many parts as it has layers;
// its prefill length is at least that of the longest prompt with its continuation. The result holds
// the tensors of docs/verifying.md for every prompt: logits, hidden states, caches after the
// prompt, routers, the continuation as greedy_ids and its greedy_logits. `name` is what messages
// call it. Every prompt runs twice: in one call, and, unless told otherwise, in several, because
// what continues a sequence is another path through a program than what begins one. An encoder has
// one call for a text, and last_hidden_state and sentence_embedding in place of logits.
struct ExecutionOutputs {
  std::unique_ptr<TensorSource> one_call, several_calls;  // the second may be nullptr
};
struct ExecutionOptions {
  bool in_several_calls = true;
  bool f64 = false;                      // compute in f64; results are rounded to f32 at the end
  std::optional<uint64_t> disturb = {};  // as MethodOptions::disturb
  // Send tokens through RecordedPrompt::routes; else the routers choose.
  bool follow_routes = false;
  ReadWeight weights = {};  // f32 values; empty: what the recipes make of the source
  Progress progress = {};   // bytes of weights whose layers are done
};
Result<ExecutionOutputs> execute_checkpoint(const plan::Conversion& conversion,
                                            const std::vector<RecordedPrompt>& prompts,
                                            const std::string& name, ThreadPool& pool,
                                            const ExecutionOptions& options = {});

// The outputs of an execution in f64, and how far executions in f32 are from them.
struct ExecutionNoise {
  std::unique_ptr<TensorSource> in_f64;
  std::shared_ptr<const NoiseModel> noise;
};
// `in_f32` is what execute_checkpoint() gave for the same prompts in one call, with the same
// `weights`. The model is executed in f64, and once more in f32 with its norms disturbed by a unit
// in the last place; tokens pass through the experts that they passed through in `in_f32`. Several
// calls are no measure of noise: where they are wrong, they would hide it.
Result<ExecutionNoise> measure_noise(const plan::Conversion& conversion,
                                     std::vector<RecordedPrompt> prompts, const Reference& in_f32,
                                     const ReadWeight& weights, ThreadPool& pool,
                                     const Progress& progress);

}  // namespace ferry::proof
