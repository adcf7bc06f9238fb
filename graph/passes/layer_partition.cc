#include "graph/passes/layer_partition.h"

#include <algorithm>
#include <compare>
#include <limits>

namespace ferry::graph {
namespace {

struct Score {
  double largest = 0;
  double squares = 0;
  auto operator<=>(const Score&) const = default;
};

struct Choice {
  Score score = {std::numeric_limits<double>::infinity(), 0};
  size_t begin = 0;  // of the last part
};

}  // namespace

std::vector<int32_t> partition_layers(const std::vector<uint64_t>& costs, int32_t count) {
  const size_t layers = costs.size();
  const auto parts = static_cast<size_t>(count);
  // best[p][n]: the first n layers in p parts.
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

}  // namespace ferry::graph
