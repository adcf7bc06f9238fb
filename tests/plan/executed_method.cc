#include "tests/plan/executed_method.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/thread_pool.h"
#include "graph/passes/passes.h"
#include "runner/method.h"

namespace ferry::plan {
namespace {

graph::LoweredProgram lowered(const graph::Model& model) {
  auto program = graph::lower(model.methods, {});
  EXPECT_TRUE(program) << program.error().message;
  return program ? *std::move(program) : graph::LoweredProgram{};
}

const graph::LoweredMethod& method_of(const graph::LoweredProgram& program,
                                      const std::string& name) {
  return *std::ranges::find(program.methods, name, &graph::LoweredMethod::name);
}

std::vector<float> floats_of(const runner::TensorView& view) {
  const auto size = static_cast<size_t>(dtype_bytes(view.dtype));
  std::vector<float> values(view.bytes.size() / size);
  if (is_castable(view.dtype)) {
    to_f32(view.dtype, view.bytes.data(), values.data(), values.size());
    return values;
  }
  for (size_t i = 0; i < values.size(); ++i) {
    uint16_t code = 0;
    std::memcpy(&code, view.bytes.data() + i * size, size);
    values[i] = code;
  }
  return values;
}

// A program with its constants and weights in memory.
struct Loaded {
  std::vector<std::vector<std::byte>> bytes;
  std::vector<runner::ExternalTensor> external;
  pte::LoadedProgram program;

  Loaded(const graph::LoweredProgram& lowered, const graph::Model& model,
         const TensorSource& source) {
    program.program = lowered.program;
    for (const graph::Literal& literal : lowered.constants) {
      std::vector<std::byte>& contents = bytes.emplace_back(literal.bytes);
      if (literal.bytes > 0) literal.fill(0, contents);
      program.data.constants.push_back(contents);
    }
    program.data.initial.resize(lowered.initial.size());
    for (const pte::Method& method : program.program.methods) {
      for (const pte::Value& value : method.values) {
        const auto* tensor = std::get_if<pte::Tensor>(&value);
        if (tensor != nullptr && tensor->external) add(*tensor, model, source);
      }
    }
  }

  void add(const pte::Tensor& tensor, const graph::Model& model, const TensorSource& source) {
    if (std::ranges::count(external, tensor.fqn, &runner::ExternalTensor::key) > 0) return;
    const graph::Recipe& recipe = model.weights.find(tensor.fqn)->recipe;
    std::vector<std::byte>& contents = bytes.emplace_back(recipe.output().bytes());
    const Status made = graph::materialize(recipe, source, 0, contents);
    EXPECT_TRUE(made) << made.error().message;
    external.push_back({tensor.fqn, tensor.dtype, tensor.sizes, contents});
  }
};

float largest_difference(const std::vector<float>& a, const std::vector<float>& b) {
  EXPECT_EQ(a.size(), b.size());
  float largest = 0;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    const float difference = std::abs(a[i] - b[i]);
    if (!(difference <= largest)) largest = std::isnan(difference) ? INFINITY : difference;
  }
  return largest;
}

std::vector<std::pair<std::string, Shape>> ports(const graph::Model& model, bool outputs) {
  std::vector<std::pair<std::string, Shape>> all;
  for (const graph::MethodGraph& method : model.methods) {
    const graph::Graph& graph = method.graph;
    for (const graph::ValueId id : outputs ? graph.outputs : graph.inputs) {
      Shape shape;
      for (const graph::Dim& dim : graph[id].shape) shape.push_back(dim.base);
      all.emplace_back(method.name + "." + graph[id].name, shape);
    }
  }
  return all;
}

}  // namespace

std::vector<graph::LoweredPort> inputs_of(const graph::Model& model, const std::string& name) {
  return method_of(lowered(model), name).inputs;
}

struct LoadedModel::Contents {
  graph::LoweredProgram lowered;
  Loaded loaded;

  Contents(const graph::Model& model, const TensorSource& source)
      : lowered(plan::lowered(model)), loaded(lowered, model, source) {}
};

LoadedModel::LoadedModel(const graph::Model& model, const TensorSource& source)
    : contents_(std::make_unique<Contents>(model, source)) {}
LoadedModel::~LoadedModel() = default;

const std::vector<graph::LoweredPort>& LoadedModel::inputs_of(const std::string& method) const {
  return method_of(contents_->lowered, method).inputs;
}

Outputs LoadedModel::execute(const std::string& name, const Tensors& inputs) const {
  const graph::LoweredMethod& stated = method_of(contents_->lowered, name);
  const Loaded& loaded = contents_->loaded;
  ThreadPool pool(1);
  auto method =
      runner::Method::load(loaded.program, name, loaded.external, pool, {.poison = true}, "test");
  Outputs outputs;
  EXPECT_TRUE(method) << method.error().message;
  if (!method) return outputs;
  for (size_t i = 0; i < stated.inputs.size(); ++i) {
    const graph::LoweredPort& port = stated.inputs[i];
    const Status set = method->set_input(i, {port.dtype, port.shape, inputs.at(port.name)});
    EXPECT_TRUE(set) << set.error().message;
  }
  const Status ran = method->execute();
  EXPECT_TRUE(ran) << ran.error().message;
  for (size_t i = 0; i < stated.outputs.size(); ++i) {
    outputs[stated.outputs[i].name] = floats_of(method->output(i));
  }
  return outputs;
}

Outputs execute(const graph::Model& model, const std::string& name, const TensorSource& source,
                const Tensors& inputs) {
  return LoadedModel(model, source).execute(name, inputs);
}

std::vector<std::byte> bytes_of(const std::vector<float>& values) {
  const auto bytes = std::as_bytes(std::span(values));
  return {bytes.begin(), bytes.end()};
}

void expect_near(const Outputs& a, const Outputs& b, float bound, const std::string& what) {
  ASSERT_EQ(a.size(), b.size()) << what;
  for (const auto& [name, values] : a) {
    float top = 1;
    for (const float value : values) top = std::max(top, std::abs(value));
    EXPECT_LE(largest_difference(values, b.at(name)), bound * top) << what << " " << name;
  }
}

std::vector<float> randoms(std::mt19937& random, size_t count) {
  std::vector<float> values(count);
  for (float& value : values) value = static_cast<float>(random() >> 8) / (1 << 23) - 1;
  return values;
}

Result<graph::Model> single_heads(const graph::Model& model) {
  graph::Model split = FERRY_TRY(graph::split_heads(model));
  return graph::cast_weights(std::move(split), graph::WeightDType::kF32);
}

// Returns the number of projections of attention in one layer of a method.
int64_t projections(const graph::Model& model, const std::string& method, int64_t layer) {
  const std::string prefix = "layers." + std::to_string(layer) + ".attention.w";
  int64_t count = 0;
  for (const graph::MethodGraph& candidate : model.methods) {
    if (candidate.name != method) continue;
    for (const graph::Node& node : candidate.graph.nodes) {
      if (node.op != graph::Op::kLinear) continue;
      const auto& weight = candidate.graph[std::get<graph::ValueId>(node.args[1])];
      count += weight.name.starts_with(prefix) ? 1 : 0;
    }
  }
  return count;
}

void expect_same_interface(const graph::Model& a, const graph::Model& b) {
  EXPECT_EQ(ports(a, false), ports(b, false));
  EXPECT_EQ(ports(a, true), ports(b, true));
}

}  // namespace ferry::plan
