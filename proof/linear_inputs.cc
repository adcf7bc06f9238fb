#include "proof/linear_inputs.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <optional>
#include <utility>
#include <variant>

#include "core/program_interface.h"
#include "formats/pte/operator_args.h"
#include "graph/dynamic_linears.h"
#include "graph/experts.h"
#include "graph/recipe.h"
#include "kernels/compute.h"
#include "kernels/quantized_linear.h"
#include "runner/method.h"

namespace ferry::proof {
namespace {

// Returns the method of a part that calibrations execute; nullptr if there is none.
const graph::MethodGraph* forward_of(const graph::Model& part) {
  const auto found = std::ranges::find(part.methods, kForwardMethod, &graph::MethodGraph::name);
  return found == part.methods.end() ? nullptr : &*found;
}

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
    const graph::Weight* own = weight;
    const graph::Recipe& recipe = own->recipe;
    if (!recipe.is_coded() || recipe.steps.back().kind != graph::Step::Kind::kQuantize) continue;
    if (recipe.steps.back().scheme.method == graph::ScaleMethod::kKept) continue;
    const bool is_shared = std::ranges::any_of(planned, [&](const auto& other) {
      return other.second != own && other.second->recipe == recipe;
    });
    if (!is_shared) names.insert(name);
  }
  return names;
}

namespace {

using graph::ExpertsArgs;
using graph::ValueId;

constexpr std::string_view kX = "expert_x.", kIds = "expert_ids.";

bool has_gate(const graph::Node& node) {
  return std::holds_alternative<ValueId>(node.args[ExpertsArgs::kW3]);
}

const graph::Value& value_of(const graph::Graph& graph, const graph::Node& node, size_t arg) {
  return graph[std::get<ValueId>(node.args[arg])];
}

Result<std::vector<float>> values_of(const graph::Model& part, const std::string& weight,
                                     const TensorSource& source) {
  const graph::Recipe& recipe = part.weights.find(weight)->recipe;
  std::vector<float> values(recipe.output().bytes() / sizeof(float));
  FERRY_RETURN_IF_ERROR(
      graph::materialize(recipe, source, 0, std::as_writable_bytes(std::span(values))));
  return values;
}

Result<ExpertMatrices> matrices_of(const graph::Model& part, const graph::Graph& graph,
                                   const graph::Node& node, const TensorSource& source) {
  const graph::Value& w1 = value_of(graph, node, ExpertsArgs::kW1);
  ExpertMatrices of{.w1 = w1.name,
                    .w3 = has_gate(node) ? value_of(graph, node, ExpertsArgs::kW3).name : "",
                    .w2 = value_of(graph, node, ExpertsArgs::kW2).name,
                    .experts = w1.shape[0].base,
                    .inner = w1.shape[1].base,
                    .hidden = w1.shape[2].base};
  of.gates = FERRY_TRY(values_of(part, of.w1, source));
  if (has_gate(node)) of.ups = FERRY_TRY(values_of(part, of.w3, source));
  of.downs = FERRY_TRY(values_of(part, of.w2, source));
  of.activation = std::get<std::string>(node.args[ExpertsArgs::kActivation]);
  if (std::holds_alternative<ValueId>(node.args[ExpertsArgs::kB1])) {
    const auto bias = [&](size_t arg) {
      return values_of(part, value_of(graph, node, arg).name, source);
    };
    of.gate_biases = FERRY_TRY(bias(ExpertsArgs::kB1));
    of.up_biases = FERRY_TRY(bias(ExpertsArgs::kB3));
    of.steepness = std::get<double>(node.args[ExpertsArgs::kSteepness]);
    of.limit = std::get<double>(node.args[ExpertsArgs::kLimit]);
  }
  return of;
}

double activated(std::string_view name, double x) {
  if (name == "relu") return std::max(x, 0.0);
  if (name == "gelu") return 0.5 * x * std::erfc(-x / std::numbers::sqrt2);
  if (name == "gelu_tanh") {
    const double bent = std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x);
    return 0.5 * x * (1 + std::tanh(bent));
  }
  return x / (1 + std::exp(-x));
}

// Returns what the expert multiplies with the rows of w2, [rows, inner], for rows of x.
std::vector<float> inner_of(const ExpertMatrices& of, std::span<const float> x, size_t expert,
                            ThreadPool& pool) {
  const auto inner = static_cast<size_t>(of.inner);
  const int64_t rows = std::ssize(x) / of.hidden;
  const auto product = [&](const std::vector<float>& matrices) {
    std::vector<float> out(static_cast<size_t>(rows) * inner);
    const float* matrix = matrices.data() + expert * inner * static_cast<size_t>(of.hidden);
    kernels::linear(DType::kF32, x.data(), matrix, out.data(), rows, of.inner, of.hidden, pool);
    return out;
  };
  std::vector<float> out = product(of.gates);
  if (of.ups.empty()) {
    for (float& value : out) value = value > 0 ? value * value : 0;
    return out;
  }
  const std::vector<float> ups = product(of.ups);
  const bool is_biased = !of.gate_biases.empty();
  for (size_t i = 0; i < out.size(); ++i) {
    double gate = double{out[i]}, up = double{ups[i]};
    if (is_biased) {
      const size_t at = expert * inner + i % inner;
      gate = std::min(gate + double{of.gate_biases[at]}, of.limit);
      up = std::clamp(up + double{of.up_biases[at]}, -of.limit, of.limit) + 1;
      gate /= 1 + std::exp(-of.steepness * gate);
    } else {
      gate = activated(of.activation, gate);
    }
    out[i] = static_cast<float>(gate * up);
  }
  return out;
}

// Returns the number behind `prefix`; nullopt for other probes.
std::optional<size_t> number_of(std::string_view probe, std::string_view prefix) {
  if (!probe.starts_with(prefix)) return std::nullopt;
  size_t number = 0;
  const char* end = probe.data() + probe.size();
  const auto read = std::from_chars(probe.data() + prefix.size(), end, number);
  return read.ec == std::errc() && read.ptr == end ? std::optional(number) : std::nullopt;
}

}  // namespace

Result<ExpertInputs> ExpertInputs::add_to(graph::Model& part, const TensorSource& source,
                                          const IsWanted& is_wanted) {
  ExpertInputs inputs;
  const graph::MethodGraph* method = forward_of(part);
  if (method == nullptr) return inputs;
  std::vector<graph::Probe> probes;
  for (const graph::Node& node : method->graph.nodes) {
    if (node.op != graph::Op::kExperts) continue;
    const auto matrices = {ExpertsArgs::kW1, ExpertsArgs::kW3, ExpertsArgs::kW2};
    const bool is_read = std::ranges::any_of(matrices, [&](size_t arg) {
      return std::holds_alternative<ValueId>(node.args[arg]) &&
             is_wanted(value_of(method->graph, node, arg).name);
    });
    if (!is_read) continue;
    const size_t i = inputs.nodes_.size();
    inputs.nodes_.push_back(FERRY_TRY(matrices_of(part, method->graph, node, source)));
    probes.push_back({fmt::format("{}{}", kX, i), std::get<ValueId>(node.args[ExpertsArgs::kX])});
    probes.push_back(
        {fmt::format("{}{}", kIds, i), std::get<ValueId>(node.args[ExpertsArgs::kIds])});
  }
  inputs.seen_.resize(inputs.nodes_.size());
  for (graph::MethodGraph& one : part.methods) {
    if (&one != method) continue;
    for (graph::Probe& probe : probes) one.graph.probes.push_back(std::move(probe));
  }
  return inputs;
}

void ExpertInputs::take(std::string_view probe, const runner::TensorView& view) {
  if (const auto node = number_of(probe, kX)) {
    seen_[*node].x = runner::probe_floats(view);
  } else if (const auto of_ids = number_of(probe, kIds)) {
    std::vector<int64_t>& ids = seen_[*of_ids].ids;
    ids.resize(view.bytes.size() / sizeof(int64_t));
    std::memcpy(ids.data(), view.bytes.data(), view.bytes.size());
  }
}

void ExpertInputs::give(ThreadPool& pool, const Use& use, size_t step) {
  for (size_t n = 0; n < nodes_.size(); ++n) {
    const ExpertMatrices& of = nodes_[n];
    Seen& seen = seen_[n];
    const auto hidden = static_cast<size_t>(of.hidden);
    const size_t tokens = seen.x.size() / hidden;
    if (tokens == 0 || seen.ids.size() % tokens != 0) continue;
    const size_t slots = seen.ids.size() / tokens;
    std::vector<std::vector<float>> rows(static_cast<size_t>(of.experts));
    for (size_t t = 0; t < tokens; ++t) {
      const auto ids = std::span(seen.ids).subspan(t * slots, slots);
      const auto x = std::span(seen.x).subspan(t * hidden, hidden);
      const bool is_for_all = step != 0 && (seen.tokens + t) % step == 0;
      for (size_t e = 0; e < rows.size(); ++e) {
        const bool is_sent = std::ranges::find(ids, static_cast<int64_t>(e)) != ids.end();
        if (is_sent || is_for_all) rows[e].insert(rows[e].end(), x.begin(), x.end());
      }
    }
    for (size_t e = 0; e < rows.size(); ++e) {
      if (!rows[e].empty()) use(n, e, rows[e], inner_of(of, rows[e], e, pool));
    }
    seen = {.x = {}, .ids = {}, .tokens = seen.tokens + tokens};
  }
}

}  // namespace ferry::proof
