#include "graph/passes/layer_partition.h"

#include <fmt/format.h>

#include <algorithm>
#include <compare>
#include <limits>
#include <set>
#include <string>
#include <utility>

#include "core/text.h"
#include "graph/graph.h"

namespace ferry::graph {
namespace {

struct Score {
  double largest = 0;
  double squares = 0;
  auto operator<=>(const Score&) const = default;
};

struct Choice {
  Score score = {std::numeric_limits<double>::infinity(), 0};
  size_t begin = 0;  // the begin of the last part
};

// Returns the bytes of weights by layer. A weight counts once in each layer that uses it.
std::vector<uint64_t> layer_costs(const Model& model, int32_t layers) {
  std::vector<uint64_t> costs(static_cast<size_t>(layers), 0);
  std::set<std::pair<int32_t, std::string>> counted;
  for (const MethodGraph& method : model.methods) {
    for (const Node& node : method.graph.nodes) {
      const int32_t layer = std::clamp(node.layer, 0, layers - 1);
      for (ValueId id : used_values(node)) {
        const Value& value = method.graph[id];
        if (value.origin != Value::Origin::kWeight) continue;
        if (!counted.emplace(layer, value.name).second) continue;
        const Weight* weight = model.weights.find(value.name);
        if (weight != nullptr) costs[static_cast<size_t>(layer)] += weight->recipe.output().bytes();
      }
    }
  }
  return costs;
}

// Returns the number of layers, which is equal in all methods.
Result<int32_t> layers_of(const Model& model) {
  if (model.methods.empty()) return fail(ErrorCode::kInternal, "shard: a model without methods");
  const int32_t layers = model.methods.front().graph.num_layers;
  for (const MethodGraph& method : model.methods) {
    if (method.graph.num_layers == layers) continue;
    return fail(ErrorCode::kInternal,
                fmt::format("shard: method {} has {} layers, method {} has {}",
                            quoted(model.methods.front().name), layers, quoted(method.name),
                            method.graph.num_layers));
  }
  return layers;
}

}  // namespace

std::vector<int32_t> partition_layers(const std::vector<uint64_t>& costs, int32_t count) {
  const size_t layers = costs.size();
  const auto parts = static_cast<size_t>(count);
  // best[p][n] is the best partition of the first n layers into p parts.
  std::vector<std::vector<Choice>> best(parts + 1, std::vector<Choice>(layers + 1));
  best[0][0].score = {};
  for (size_t p = 1; p <= parts; ++p) {
    for (size_t n = p; n <= layers; ++n) {
      double sum = 0;  // exact: weights are far below 2^53 bytes
      for (size_t begin = n; begin-- > p - 1;) {
        sum += static_cast<double>(costs[begin]);
        const Score& before = best[p - 1][begin].score;
        const Score score = {std::max(before.largest, sum), before.squares + sum * sum};
        if (score < best[p][n].score) best[p][n] = {score, begin};
      }
    }
  }
  std::vector<int32_t> bounds(parts + 1, static_cast<int32_t>(layers));
  size_t n = layers;
  for (size_t p = parts; p > 0; --p) {
    n = best[p][n].begin;
    bounds[p - 1] = static_cast<int32_t>(n);
  }
  return bounds;
}

Result<std::vector<int32_t>> partition_model(const Model& model, int32_t count) {
  const int32_t layers = FERRY_TRY(layers_of(model));
  if (count < 1 || count > layers) {
    return fail(ErrorCode::kUsage,
                fmt::format("a model of {} layers cannot be cut into {} parts", layers, count));
  }
  return partition_layers(layer_costs(model, layers), count);
}

}  // namespace ferry::graph
