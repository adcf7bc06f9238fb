// LoadedPart is one part of a converted model, such as a layer, with its weights in memory.
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

}  // namespace ferry::proof
