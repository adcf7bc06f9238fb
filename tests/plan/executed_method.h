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

// A model that is lowered once, with its weights in memory. Planned memory is poisoned. Failures
// are reported to the test.
class LoadedModel {
 public:
  // The weights are those that the recipes make of `source`.
  LoadedModel(const graph::Model& model, const TensorSource& source);
  ~LoadedModel();

  const std::vector<graph::LoweredPort>& inputs_of(const std::string& method) const;
  // Outputs by name, as f32; codes of quantised ones.
  Outputs execute(const std::string& method, const Tensors& inputs) const;

 private:
  struct Contents;
  std::unique_ptr<Contents> contents_;
};

// The same for one method alone.
std::vector<graph::LoweredPort> inputs_of(const graph::Model& model, const std::string& name);
Outputs execute(const graph::Model& model, const std::string& name, const TensorSource& source,
                const Tensors& inputs);

std::vector<std::byte> bytes_of(const std::vector<float>& values);
// In [-1, 1).
std::vector<float> randoms(std::mt19937& random, size_t count);
// Differences of at most `bound` times the largest value of an output, at least 1.
void expect_near(const Outputs& a, const Outputs& b, float bound, const std::string& what);

// split_heads, and weights in f32.
Result<graph::Model> single_heads(const graph::Model& model);
// Number of projections of attention in one layer of a method.
int64_t projections(const graph::Model& model, const std::string& method, int64_t layer);
// Equal inputs and outputs, by name and shape.
void expect_same_interface(const graph::Model& a, const graph::Model& b);

}  // namespace ferry::plan
