#include "proof/expert_inputs.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <optional>
#include <variant>

#include "graph/experts.h"
#include "graph/recipe.h"
#include "proof/linear_inputs.h"

namespace ferry::proof {
namespace {

using graph::ExpertsArgs;
using graph::ValueId;

constexpr std::string_view kX = "expert_x.", kIds = "expert_ids.";

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
                    .w3 = value_of(graph, node, ExpertsArgs::kW3).name,
                    .w2 = value_of(graph, node, ExpertsArgs::kW2).name,
                    .experts = w1.shape[0].base,
                    .inner = w1.shape[1].base,
                    .hidden = w1.shape[2].base};
  of.gates = FERRY_TRY(values_of(part, of.w1, source));
  of.ups = FERRY_TRY(values_of(part, of.w3, source));
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

// Returns the number behind `prefix`; nullopt for other probes.
std::optional<size_t> number_of(std::string_view probe, std::string_view prefix) {
  if (!probe.starts_with(prefix)) return std::nullopt;
  size_t number = 0;
  const char* end = probe.data() + probe.size();
  const auto read = std::from_chars(probe.data() + prefix.size(), end, number);
  return read.ec == std::errc() && read.ptr == end ? std::optional(number) : std::nullopt;
}

}  // namespace

Result<ExpertInputs> ExpertInputs::add_to(graph::Model& part, const TensorSource& source) {
  ExpertInputs inputs;
  const graph::MethodGraph* method = forward_of(part);
  if (method == nullptr) return inputs;
  std::vector<graph::Probe> probes;
  for (const graph::Node& node : method->graph.nodes) {
    if (node.op != graph::Op::kExperts) continue;
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

void ExpertInputs::give(ThreadPool& pool, const Use& use) {
  for (size_t n = 0; n < nodes_.size(); ++n) {
    const ExpertMatrices& of = nodes_[n];
    Seen& seen = seen_[n];
    const auto hidden = static_cast<size_t>(of.hidden), inner = static_cast<size_t>(of.inner);
    const size_t tokens = seen.x.size() / hidden;
    if (tokens == 0 || seen.ids.size() % tokens != 0) continue;
    const size_t slots = seen.ids.size() / tokens;
    const auto row = [&](size_t i) {
      return std::span(seen.x).subspan(i / slots * hidden, hidden);
    };
    std::vector<float> inners(seen.ids.size() * inner);
    pool.parallel_for(seen.ids.size(), [&](size_t i) {
      std::ranges::copy(inner_of(of, row(i), static_cast<size_t>(seen.ids[i])),
                        inners.begin() + static_cast<std::ptrdiff_t>(i * inner));
    });
    for (size_t i = 0; i < seen.ids.size(); ++i) {
      use(n, static_cast<size_t>(seen.ids[i]), row(i), std::span(inners).subspan(i * inner, inner));
    }
    seen = {};
  }
}

}  // namespace ferry::proof
