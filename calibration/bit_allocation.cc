#include "calibration/bit_allocation.h"

#include <algorithm>

namespace ferry::calibration {
namespace {

// A change of a matrix to a larger choice.
struct Upgrade {
  size_t matrix, choice;
  uint64_t bytes;
  double gain;  // per byte
};

// Returns the choices that are best for their bytes, smallest first: each later one takes less from
// the cost for a byte than the one before (the lower convex hull).
std::vector<size_t> hull_of(const std::vector<BitChoice>& choices) {
  std::vector<size_t> order(choices.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::ranges::stable_sort(order, [&](size_t a, size_t b) {
    if (choices[a].bytes != choices[b].bytes) return choices[a].bytes < choices[b].bytes;
    return choices[a].cost < choices[b].cost;
  });
  const auto gain = [&](size_t from, size_t to) {
    return (choices[from].cost - choices[to].cost) /
           static_cast<double>(choices[to].bytes - choices[from].bytes);
  };
  std::vector<size_t> hull;
  for (const size_t next : order) {
    if (!hull.empty() && !(choices[next].cost < choices[hull.back()].cost)) continue;
    if (!hull.empty() && choices[next].bytes == choices[hull.back()].bytes) continue;
    while (hull.size() > 1 && gain(hull.back(), next) >= gain(hull[hull.size() - 2], hull.back())) {
      hull.pop_back();
    }
    hull.push_back(next);
  }
  return hull;
}

}  // namespace

std::optional<std::vector<size_t>> allocate_bits(std::span<const std::vector<BitChoice>> matrices,
                                                 uint64_t bytes) {
  std::vector<size_t> chosen;
  std::vector<Upgrade> upgrades;
  for (size_t m = 0; m < matrices.size(); ++m) {
    const std::vector<size_t> hull = hull_of(matrices[m]);
    const BitChoice* from = &matrices[m][hull.front()];
    chosen.push_back(hull.front());
    if (from->bytes > bytes) return std::nullopt;
    bytes -= from->bytes;
    for (size_t i = 1; i < hull.size(); ++i) {
      const BitChoice& to = matrices[m][hull[i]];
      const uint64_t more = to.bytes - from->bytes;
      upgrades.push_back({m, hull[i], more, (from->cost - to.cost) / static_cast<double>(more)});
      from = &to;
    }
  }
  std::ranges::stable_sort(upgrades,
                           [](const Upgrade& a, const Upgrade& b) { return a.gain > b.gain; });
  // A matrix that an upgrade did not fit keeps its choice, because the next one is larger.
  std::vector<bool> full(matrices.size());
  for (const Upgrade& upgrade : upgrades) {
    if (full[upgrade.matrix]) continue;
    if (upgrade.bytes > bytes) {
      full[upgrade.matrix] = true;
      continue;
    }
    bytes -= upgrade.bytes;
    chosen[upgrade.matrix] = upgrade.choice;
  }
  return chosen;
}

}  // namespace ferry::calibration
