#include "proof/input_squares.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <set>
#include <span>
#include <utility>
#include <variant>

#include "core/program_interface.h"
#include "core/text.h"
#include "formats/pte/operator_args.h"
#include "graph/experts.h"
#include "graph/graph.h"
#include "kernels/common_target.h"
#include "proof/calibration.h"
#include "proof/checkpoint_execution.h"
#include "proof/linear_inputs.h"

namespace ferry::proof {
namespace {

using graph::ExpertsArgs;
using graph::ValueId;

constexpr std::string_view kProbe = "input_squares.";

// Sums in f64, so that their order decides less.
struct Sums {
  int64_t columns = 0;
  std::vector<double> squares;
  std::vector<int64_t> counts;

  Sums(int64_t matrices, int64_t width)
      : columns(width),
        squares(static_cast<size_t>(matrices * width)),
        counts(static_cast<size_t>(matrices)) {}

  void add(std::span<const float> row, size_t matrix) {
    double* to = squares.data() + matrix * static_cast<size_t>(columns);
    for (size_t c = 0; c < row.size(); ++c) to[c] += static_cast<double>(row[c] * row[c]);
    ++counts[matrix];
  }
};

// The matrices of a node of experts, with their biases.
struct ExpertMatrices {
  std::string w1, w3, w2;
  int64_t experts = 0, inner = 0, hidden = 0;
  std::vector<float> gates = {}, ups = {};              // [experts, inner, hidden]
  std::vector<float> gate_biases = {}, up_biases = {};  // [experts, inner], or empty
  double steepness = 0, limit = 0;            // used with biases
};

const graph::Value& value_of(const graph::Graph& graph, const graph::Node& node, size_t arg) {
  return graph[std::get<ValueId>(node.args[arg])];
}

// Returns what the expert multiplies with the rows of w2.
std::vector<float> inner_of(const ExpertMatrices& of, std::span<const float> x, size_t expert) {
  const auto inner = static_cast<size_t>(of.inner), hidden = static_cast<size_t>(of.hidden);
  std::vector<float> out(inner);
  const auto product = [&](const std::vector<float>& matrix, size_t row) {
    const float* w = matrix.data() + (expert * inner + row) * hidden;
    double sum = 0;
    for (size_t c = 0; c < hidden; ++c)
      sum += static_cast<double>(w[c]) * static_cast<double>(x[c]);
    return sum;
  };
  for (size_t row = 0; row < inner; ++row) {
    double gate = product(of.gates, row), up = product(of.ups, row);
    double steepness = 1, more = 0;
    if (!of.gate_biases.empty()) {
      gate = std::min(gate + static_cast<double>(of.gate_biases[expert * inner + row]), of.limit);
      up = std::clamp(up + static_cast<double>(of.up_biases[expert * inner + row]), -of.limit,
                      of.limit);
      steepness = of.steepness;
      more = 1;
    }
    out[row] = static_cast<float>(gate / (1 + std::exp(-steepness * gate)) * (up + more));
  }
  return out;
}

class SquareMeter {
 public:
  SquareMeter(const plan::Conversion& layers, const Prompts& prompts, ThreadPool& pool,
              const Progress& progress)
      : layers_(layers),
        prompts_(prompts),
        pool_(pool),
        passed_(prompts.size()),
        progress_(progress, prompts.size() * parts_of(layers)) {}

  Result<std::map<std::string, InputSquares>> run() {
    for (const plan::ConvertedComponent& component : layers_.components) {
      if (component.role == kVisionEncoderRole) continue;
      readers_ = readers_of_weights(component);
      for (const auto& reader : readers_) weights_.insert(reader.first);
      for (const graph::Model& part : component.parts) FERRY_RETURN_IF_ERROR(measure(part));
    }
    std::map<std::string, InputSquares> out;
    for (const auto& [weight, sums] : sums_) {
      InputSquares& made = out[weight];
      for (const double square : sums.squares) made.sums.push_back(static_cast<float>(square));
      for (const int64_t count : sums.counts) made.counts.push_back(static_cast<float>(count));
      if (std::ranges::all_of(made.sums, [](float sum) { return std::isfinite(sum); })) continue;
      return bad_input(fmt::format("{}: the text gives values that are not finite (inputs of {})",
                                   printable(name()), quoted(weight)));
    }
    return out;
  }

 private:
  static size_t parts_of(const plan::Conversion& layers) {
    size_t parts = 0;
    for (const plan::ConvertedComponent& component : layers.components) {
      if (component.role != kVisionEncoderRole) parts += component.parts.size();
    }
    return parts;
  }

  // Names what happens with a value of the graph when it is computed.
  using Use = std::function<void(const runner::TensorView&)>;

  Status measure(const graph::Model& given) {
    graph::Model part = given;
    uses_.clear();
    routed_.clear();
    add_linears(part);
    FERRY_RETURN_IF_ERROR(add_experts(part));
    const auto loaded = FERRY_TRY(LoadedPart::load(part, weights_from(source()), pool_, name()));
    std::map<int32_t, std::vector<const Use*>> by_value;  // a value may have several probes
    for (const graph::LoweredProbe& probe : loaded->lowered().probes) {
      const auto use = uses_.find(probe.name);
      if (use != uses_.end()) by_value[probe.value].push_back(&use->second);
    }
    for (const auto& [value, uses] : by_value) {
      FERRY_RETURN_IF_ERROR(
          loaded->method().observe(value, [uses = uses](const runner::TensorView& view) {
            for (const Use* use : uses) (*use)(view);
          }));
    }
    for (size_t p = 0; p < prompts_.size(); ++p) {
      loaded->method().reset();
      FERRY_RETURN_IF_ERROR(loaded->run(prompts_[p], 0, passed_[p]));
      for (Routed& routed : routed_) add_routed(routed);
      progress_.advance(1);
    }
    return {};
  }

  Sums& sums_of(const std::string& weight, int64_t matrices, int64_t columns) {
    return sums_.try_emplace(weight, matrices, columns).first->second;
  }

  void add_linears(graph::Model& part) {
    const std::vector<LinearInput> inputs = observed_inputs(part, weights_, {}, readers_);
    graph::MethodGraph* method = nullptr;
    for (graph::MethodGraph& one : part.methods) {
      if (one.name == kForwardMethod) method = &one;
    }
    if (method == nullptr) return;
    for (const graph::Probe& probe : method->graph.probes) {
      const auto index = input_of(probe.name);
      if (!index) continue;
      const LinearInput& input = inputs[*index];
      Sums& sums = sums_of(input.weights.front(), 1, input.columns);
      for (const std::string& other : input.weights) shared_[other] = input.weights.front();
      uses_[probe.name] = [&sums](const runner::TensorView& view) {
        const std::vector<float> values = runner::probe_floats(view);
        const auto columns = static_cast<size_t>(sums.columns);
        for (size_t at = 0; at + columns <= values.size(); at += columns) {
          sums.add(std::span(values).subspan(at, columns), 0);
        }
      };
    }
  }

  // What reaches one node of experts in a call.
  struct Routed {
    ExpertMatrices matrices;
    std::vector<float> x;
    std::vector<int64_t> ids;
  };

  Status add_experts(graph::Model& part) {
    const graph::MethodGraph* method = forward_of(part);
    if (method == nullptr) return {};
    std::vector<const graph::Node*> nodes;
    for (const graph::Node& node : method->graph.nodes) {
      if (node.op == graph::Op::kExperts) nodes.push_back(&node);
    }
    routed_.resize(nodes.size());
    std::vector<graph::Probe> probes;
    for (size_t i = 0; i < nodes.size(); ++i) {
      routed_[i].matrices = FERRY_TRY(matrices_of(part, method->graph, *nodes[i]));
      const std::string x = fmt::format("{}x.{}", kProbe, i),
                        ids = fmt::format("{}ids.{}", kProbe, i);
      probes.push_back({x, std::get<ValueId>(nodes[i]->args[ExpertsArgs::kX])});
      probes.push_back({ids, std::get<ValueId>(nodes[i]->args[ExpertsArgs::kIds])});
      Routed& routed = routed_[i];
      uses_[x] = [&routed](const runner::TensorView& view) {
        routed.x = runner::probe_floats(view);
      };
      uses_[ids] = [&routed](const runner::TensorView& view) {
        routed.ids.resize(view.bytes.size() / sizeof(int64_t));
        std::memcpy(routed.ids.data(), view.bytes.data(), view.bytes.size());
      };
    }
    for (graph::MethodGraph& one : part.methods) {
      if (one.name != kForwardMethod) continue;
      for (graph::Probe& probe : probes) one.graph.probes.push_back(std::move(probe));
    }
    return {};
  }

  Result<std::vector<float>> values_of(const graph::Model& part, const std::string& weight) {
    const graph::Recipe& recipe = part.weights.find(weight)->recipe;
    std::vector<float> values(recipe.output().bytes() / sizeof(float));
    FERRY_RETURN_IF_ERROR(
        graph::materialize(recipe, source(), 0, std::as_writable_bytes(std::span(values))));
    return values;
  }

  Result<ExpertMatrices> matrices_of(const graph::Model& part, const graph::Graph& graph,
                                     const graph::Node& node) {
    const graph::Value& w1 = value_of(graph, node, ExpertsArgs::kW1);
    ExpertMatrices of{.w1 = w1.name,
                      .w3 = value_of(graph, node, ExpertsArgs::kW3).name,
                      .w2 = value_of(graph, node, ExpertsArgs::kW2).name,
                      .experts = w1.shape[0].base,
                      .inner = w1.shape[1].base,
                      .hidden = w1.shape[2].base};
    of.gates = FERRY_TRY(values_of(part, of.w1));
    of.ups = FERRY_TRY(values_of(part, of.w3));
    if (std::holds_alternative<ValueId>(node.args[ExpertsArgs::kB1])) {
      of.gate_biases = FERRY_TRY(values_of(part, value_of(graph, node, ExpertsArgs::kB1).name));
      of.up_biases = FERRY_TRY(values_of(part, value_of(graph, node, ExpertsArgs::kB3).name));
      of.steepness = std::get<double>(node.args[ExpertsArgs::kSteepness]);
      of.limit = std::get<double>(node.args[ExpertsArgs::kLimit]);
    }
    return of;
  }

  void add_routed(Routed& routed) {
    const ExpertMatrices& of = routed.matrices;
    const auto hidden = static_cast<size_t>(of.hidden), inner = static_cast<size_t>(of.inner);
    const size_t tokens = routed.x.size() / hidden;
    if (tokens == 0 || routed.ids.size() % tokens != 0) return;
    const size_t slots = routed.ids.size() / tokens;
    std::vector<float> inners(routed.ids.size() * inner);
    pool_.parallel_for(routed.ids.size(), [&](size_t i) {
      const auto row = std::span(routed.x).subspan(i / slots * hidden, hidden);
      std::ranges::copy(inner_of(of, row, static_cast<size_t>(routed.ids[i])),
                        inners.begin() + static_cast<std::ptrdiff_t>(i * inner));
    });
    Sums &in = sums_of(of.w1, of.experts, of.hidden), &down = sums_of(of.w2, of.experts, of.inner);
    shared_[of.w3] = of.w1;
    for (size_t i = 0; i < routed.ids.size(); ++i) {
      const auto expert = static_cast<size_t>(routed.ids[i]);
      in.add(std::span(routed.x).subspan(i / slots * hidden, hidden), expert);
      down.add(std::span(inners).subspan(i * inner, inner), expert);
    }
    routed.x.clear();
    routed.ids.clear();
  }

 public:
  // Maps weights to those with the same inputs, under whose names the sums are.
  const std::map<std::string, std::string>& shared() const { return shared_; }

 private:
  const TensorSource& source() const { return *layers_.mapped.source; }
  const std::string& name() const { return source().path(); }

  const plan::Conversion& layers_;
  const Prompts& prompts_;
  ThreadPool& pool_;
  std::vector<PassedTensors> passed_;  // for each prompt
  SharedProgress progress_;
  std::map<std::string, int> readers_;
  std::set<std::string> weights_;
  std::map<std::string, Sums> sums_;  // a map, because uses refer to its elements
  std::map<std::string, std::string> shared_;
  std::map<std::string, Use> uses_;  // by the name of the probe
  std::vector<Routed> routed_;       // of the nodes of a part
};

}  // namespace

Result<std::map<std::string, InputSquares>> measure_input_squares(
    const plan::ConvertOptions& options, const Prompts& sequences, ThreadPool& pool,
    const Progress& progress) {
  const kernels::CommonTarget target_of_kernels;
  const plan::Conversion layers = FERRY_TRY(plan_calibration(options, sequences));
  SquareMeter meter(layers, sequences, pool, progress);
  auto squares = FERRY_TRY(meter.run());
  for (const auto& [weight, same] : meter.shared()) {
    if (weight != same) squares[weight] = squares.at(same);
  }
  return squares;
}

}  // namespace ferry::proof
