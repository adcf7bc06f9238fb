// Executes a method of a graph::Model, without a bundle.
#pragma once

#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "core/tensor_source.h"
#include "graph/graph.h"
#include "graph/lower.h"

namespace ferry::plan {

using Tensors = std::map<std::string, std::vector<std::byte>>;
using Outputs = std::map<std::string, std::vector<float>>;

// A model that is lowered once, with its weights in memory. Planned memory is poisoned. Errors fail
// the test.
class LoadedModel {
 public:
  // The recipes make the weights of `source`.
  LoadedModel(const graph::Model& model, const TensorSource& source);
  ~LoadedModel();

  const std::vector<graph::LoweredPort>& inputs_of(const std::string& method) const;
  // Returns outputs by name, as f32. Quantised outputs are codes.
  Outputs execute(const std::string& method, const Tensors& inputs) const;

 private:
  struct Contents;
  std::unique_ptr<Contents> contents_;
};

// These functions lower the model for one call.
std::vector<graph::LoweredPort> inputs_of(const graph::Model& model, const std::string& name);
Outputs execute(const graph::Model& model, const std::string& name, const TensorSource& source,
                const Tensors& inputs);

std::vector<std::byte> bytes_of(const std::vector<float>& values);
// Returns values in [-1, 1).
std::vector<float> randoms(std::mt19937& random, size_t count);
// Expects differences of at most `bound` times the largest value of an output, but at least 1.
void expect_near(const Outputs& a, const Outputs& b, float bound, const std::string& what);

// Returns the model after split_heads, with weights in f32.
Result<graph::Model> single_heads(const graph::Model& model);
// Returns the number of projections of attention in one layer of a method.
int64_t projections(const graph::Model& model, const std::string& method, int64_t layer);
// Expects equal inputs and outputs, by name and shape.
void expect_same_interface(const graph::Model& a, const graph::Model& b);

}  // namespace ferry::plan
