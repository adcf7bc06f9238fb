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
#include "kernels/compute.h"
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
  of.downs = FERRY_TRY(values_of(part, of.w2, source));
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
  const std::vector<float> ups = product(of.ups);
  const bool is_biased = !of.gate_biases.empty();
  for (size_t i = 0; i < out.size(); ++i) {
    double gate = double{out[i]}, up = double{ups[i]}, steepness = 1, more = 0;
    if (is_biased) {
      const size_t at = expert * inner + i % inner;
      gate = std::min(gate + double{of.gate_biases[at]}, of.limit);
      up = std::clamp(up + double{of.up_biases[at]}, -of.limit, of.limit);
      steepness = of.steepness;
      more = 1;
    }
    out[i] = static_cast<float>(gate / (1 + std::exp(-steepness * gate)) * (up + more));
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
    const bool is_read = std::ranges::any_of(
        matrices, [&](size_t arg) { return is_wanted(value_of(method->graph, node, arg).name); });
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
