#include "proof/linear_inputs.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <variant>

#include "core/program_interface.h"
#include "formats/pte/operator_args.h"
#include "graph/dynamic_linears.h"
#include "kernels/quantized_linear.h"
#include "runner/method.h"

namespace ferry::proof {
namespace {

// Names of probes that this file adds begin with this.
constexpr std::string_view kInputProbe = "calibration_input.";

// Collects what the nodes of a method do with its values.
class InputFinder {
 public:
  InputFinder(const graph::Graph& graph, const std::set<std::string>& calibrated,
              const std::set<std::string>& rounding, const std::map<std::string, int>& readers)
      : graph_(graph), calibrated_(calibrated), rounding_(rounding), readers_(readers) {
    // An activation that is an output or has a probe must stay as it is.
    for (const graph::ValueId id : graph.outputs) read_exactly_.insert(id);
    for (const graph::Probe& probe : graph.probes) shown_.insert(probe.value);
    for (const graph::Node& node : graph.nodes) add(node);
  }

  std::map<graph::ValueId, LinearInput> take() {
    for (auto& [value, input] : inputs_) {
      input.rounded = !read_exactly_.contains(value);
      const bool is_free = input.rounded && !shown_.contains(value) && !others_.contains(value);
      if (!is_free) continue;
      input.norm = norm_of(*makers_.at(value), input.columns);
      if (input.norm.empty()) input.product = product_of(*makers_.at(value), input.columns);
    }
    return std::move(inputs_);
  }

 private:
  void add(const graph::Node& node) {
    for (const graph::ValueId out : node.outs) makers_[out] = &node;
    for (const graph::ValueId id : graph::used_values(node)) ++uses_[id];
    if (node.op != graph::Op::kLinear) {
      for (const graph::ValueId id : graph::used_values(node)) read_exactly_.insert(id);
      return;
    }
    const auto x = std::get<graph::ValueId>(node.args[pte::ops::Linear::kInput]);
    const graph::Value& weight =
        graph_[std::get<graph::ValueId>(node.args[pte::ops::Linear::kWeight])];
    if (!rounding_.contains(weight.name)) read_exactly_.insert(x);
    if (!makers_.contains(x) || !calibrated_.contains(weight.name)) {
      others_.insert(x);
      return;
    }
    if (readers_.at(weight.name) > 1) others_.insert(x);
    inputs_[x].weights.push_back(weight.name);
    inputs_[x].columns = weight.shape.back().base;
  }

  // Returns the name of the vector of weights that the argument is, if no other node reads it.
  std::optional<std::string> own_vector(const graph::Arg& arg, int64_t columns) const {
    const auto* id = std::get_if<graph::ValueId>(&arg);
    if (id == nullptr) return std::nullopt;
    const graph::Value& value = graph_[*id];
    const bool is_vector = value.origin == graph::Value::Origin::kWeight &&
                           value.shape.size() == 1 && value.shape[0].base == columns;
    if (!is_vector || readers_.at(value.name) > 1) return std::nullopt;
    return value.name;
  }

  // The last step of an RMSNorm is a product with its vector.
  std::vector<std::string> norm_of(const graph::Node& node, int64_t columns) const {
    using pte::ops::Binary;
    using pte::ops::LayerNorm;
    if (node.op == graph::Op::kMul) {
      for (const auto arg : {Binary::kSelf, Binary::kOther}) {
        if (auto name = own_vector(node.args[arg], columns)) return {*std::move(name)};
      }
      return {};
    }
    if (node.op != graph::Op::kLayerNorm) return {};
    const auto weight = own_vector(node.args[LayerNorm::kWeight], columns);
    if (!weight) return {};
    if (!std::holds_alternative<graph::ValueId>(node.args[LayerNorm::kBias])) return {*weight};
    const auto bias = own_vector(node.args[LayerNorm::kBias], columns);
    return bias ? std::vector{*weight, *bias} : std::vector<std::string>();
  }

  // Returns the calibrated matrix of a linear node whose outputs are read by the product alone.
  std::string product_of(const graph::Node& node, int64_t columns) const {
    using pte::ops::Binary;
    if (node.op != graph::Op::kMul) return {};
    for (const auto arg : {Binary::kOther, Binary::kSelf}) {
      const auto* id = std::get_if<graph::ValueId>(&node.args[arg]);
      const auto maker = id == nullptr ? makers_.end() : makers_.find(*id);
      if (maker == makers_.end() || maker->second->op != graph::Op::kLinear) continue;
      if (uses_.at(*id) != 1 || shown_.contains(*id) || read_as_output(*id)) continue;
      const std::vector<graph::Arg>& args = maker->second->args;
      if (!std::holds_alternative<std::monostate>(args[pte::ops::Linear::kBias])) continue;
      const graph::Value& matrix =
          graph_[std::get<graph::ValueId>(args[pte::ops::Linear::kWeight])];
      const bool is_own = calibrated_.contains(matrix.name) && readers_.at(matrix.name) == 1 &&
                          matrix.shape.front().base == columns;
      if (is_own) return matrix.name;
    }
    return {};
  }
  bool read_as_output(graph::ValueId id) const {
    return std::ranges::find(graph_.outputs, id) != graph_.outputs.end();
  }

  const graph::Graph& graph_;
  const std::set<std::string>& calibrated_;
  const std::set<std::string>& rounding_;
  const std::map<std::string, int>& readers_;
  std::map<graph::ValueId, LinearInput> inputs_;
  std::map<graph::ValueId, const graph::Node*> makers_;
  std::map<graph::ValueId, int> uses_;
  std::set<graph::ValueId> read_exactly_, shown_, others_;
};

}  // namespace

const graph::MethodGraph* forward_of(const graph::Model& part) {
  const auto found = std::ranges::find(part.methods, kForwardMethod, &graph::MethodGraph::name);
  return found == part.methods.end() ? nullptr : &*found;
}

std::map<std::string, int> readers_of_weights(const plan::ConvertedComponent& component) {
  std::map<std::string, int> readers;
  for (const graph::Model& part : component.parts) {
    const graph::MethodGraph* method = forward_of(part);
    if (method == nullptr) continue;
    for (const graph::Node& node : method->graph.nodes) {
      for (const graph::ValueId id : graph::used_values(node)) {
        const graph::Value& value = method->graph[id];
        if (value.origin == graph::Value::Origin::kWeight) ++readers[value.name];
      }
    }
  }
  return readers;
}

std::vector<LinearInput> observed_inputs(graph::Model& part,
                                         const std::set<std::string>& calibrated,
                                         const std::set<std::string>& rounding,
                                         const std::map<std::string, int>& readers) {
  std::vector<LinearInput> inputs;
  for (graph::MethodGraph& method : part.methods) {
    if (method.name != kForwardMethod) continue;
    for (auto& [value, input] : InputFinder(method.graph, calibrated, rounding, readers).take()) {
      method.graph.probes.push_back({fmt::format("{}{}", kInputProbe, inputs.size()), value});
      inputs.push_back(std::move(input));
    }
  }
  return inputs;
}

std::optional<size_t> input_of(std::string_view probe) {
  if (!probe.starts_with(kInputProbe)) return std::nullopt;
  return static_cast<size_t>(std::stoul(std::string(probe.substr(kInputProbe.size()))));
}

Status observe_inputs(LoadedPart& part, const UseOfInput& use) {
  for (const graph::LoweredProbe& probe : part.lowered().probes) {
    const std::optional<size_t> index = input_of(probe.name);
    if (!index) continue;
    FERRY_RETURN_IF_ERROR(part.method().observe(
        probe.value, [use, index, value = probe.value](const runner::TensorView& view) {
          std::vector<float> values = runner::probe_floats(view);
          use(*index, value, values);
        }));
  }
  return {};
}

void round_rows(std::span<float> values, int64_t columns) {
  std::vector<int8_t> codes(static_cast<size_t>(columns));
  for (size_t at = 0; at < values.size(); at += codes.size()) {
    const std::span<float> row = values.subspan(at, codes.size());
    const kernels::QuantizedRow rounded = kernels::quantize_row(row, codes);
    for (size_t i = 0; i < row.size(); ++i) {
      row[i] = static_cast<float>(codes[i] - rounded.zero_point) * rounded.inverse_scale;
    }
  }
}

Status run_rounded(LoadedPart& part, std::string_view role, const std::vector<LinearInput>& inputs,
                   const Sequences& sequences, std::vector<PassedTensors>& states) {
  // The first error of an observer. Observers stay when this function returns.
  const auto replaced = std::make_shared<Status>();
  FERRY_RETURN_IF_ERROR(observe_inputs(
      part, [&part, inputs, replaced](size_t i, int32_t value, std::vector<float>& values) {
        if (i >= inputs.size() || !inputs[i].rounded || !*replaced) return;
        round_rows(values, inputs[i].columns);
        *replaced = part.method().overwrite(value, std::as_bytes(std::span(values)));
      }));
  for (size_t i = 0; i < sequences.size(); ++i) {
    FERRY_RETURN_IF_ERROR(sequences.run(part, role, i, states[i]));
  }
  return *replaced;
}

std::set<std::string> rounding_weights(const plan::Conversion& target) {
  std::set<std::string> names;
  for (const plan::ConvertedComponent& component : target.components) {
    for (const graph::Model& part : component.parts) {
      for (const graph::MethodGraph& method : part.methods) {
        for (const graph::Node& node : method.graph.nodes) {
          if (node.op != graph::Op::kDynamicLinears) continue;
          const auto& codes =
              std::get<graph::TensorListArg>(node.args[graph::DynamicLinearsArgs::kCodes]);
          for (const graph::ValueId id : codes.items) names.insert(method.graph[id].name);
        }
      }
    }
  }
  return names;
}

std::set<std::string> codes_of_their_own(
    const std::map<std::string, const graph::Weight*>& planned) {
  std::set<std::string> names;
  for (const auto& [name, weight] : planned) {
    const graph::Recipe& recipe = weight->recipe;
    if (!recipe.is_coded() || recipe.steps.back().kind != graph::Step::Kind::kQuantize) continue;
    if (recipe.steps.back().scheme.method == graph::ScaleMethod::kKept) continue;
    const bool is_shared = std::ranges::any_of(planned, [&](const auto& other) {
      return other.second != weight && other.second->recipe == recipe;
    });
    if (!is_shared) names.insert(name);
  }
  return names;
}

}  // namespace ferry::proof
