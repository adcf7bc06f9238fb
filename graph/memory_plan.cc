// Greedy placement: values are placed one by one, largest first, each into the smallest gap between
// the placed values that live at the same time. A few orders are tried and the best is kept.
#include "graph/memory_plan.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <span>
#include <tuple>

#include "core/checked.h"
#include "formats/pte/operator_args.h"
#include "graph/graph.h"

namespace ferry::graph {
namespace {

struct Item {
  uint64_t bytes = 0;  // rounded up to the alignment
  int32_t first = 0, last = 0;
  bool overlaps(const Item& other) const { return first <= other.last && other.first <= last; }
};

// Returns the largest sum of bytes that live at once.
uint64_t peak_of(const std::vector<Item>& items) {
  struct Event {
    int64_t time;
    bool begins;
    uint64_t bytes;
  };
  std::vector<Event> events;
  events.reserve(2 * items.size());
  for (const Item& item : items) {
    events.push_back({item.first, true, item.bytes});
    events.push_back({int64_t{item.last} + 1, false, item.bytes});
  }
  std::sort(events.begin(), events.end(), [](const Event& a, const Event& b) {
    return std::tuple(a.time, a.begins) < std::tuple(b.time, b.begins);
  });
  uint64_t live = 0, peak = 0;
  for (const Event& event : events) {
    live = event.begins ? live + event.bytes : live - event.bytes;
    peak = std::max(peak, live);
  }
  return peak;
}

// The values that live at the same time as each value. In real graphs the pairs are few. If they
// are too many, the lists are empty, and every placed value is examined instead.
class Neighbours {
 public:
  explicit Neighbours(const std::vector<Item>& items) : lists_(items.size()) {
    std::vector<uint32_t> order(items.size()), live;
    std::iota(order.begin(), order.end(), 0u);
    std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
      return std::tuple(items[a].first, a) < std::tuple(items[b].first, b);
    });
    size_t pairs = 0;
    for (uint32_t index : order) {
      std::erase_if(live, [&](uint32_t i) { return items[i].last < items[index].first; });
      pairs += live.size();
      if (pairs > kMaxPairsPerItem * items.size()) {
        lists_.clear();
        return;
      }
      for (uint32_t i : live) {
        lists_[i].push_back(index);
        lists_[index].push_back(i);
      }
      live.push_back(index);
    }
  }
  bool known() const { return !lists_.empty(); }
  const std::vector<uint32_t>& of(uint32_t index) const { return lists_[index]; }

 private:
  static constexpr size_t kMaxPairsPerItem = 128;
  std::vector<std::vector<uint32_t>> lists_;
};

class Placement {
 public:
  Placement(const std::vector<Item>& items, const Neighbours& neighbours)
      : items_(items), neighbours_(neighbours), offsets_(items.size(), kUnplaced) {}

  void place(uint32_t index) {
    collect(index);
    offsets_[index] = tightest_gap(items_[index].bytes);
    arena_ = std::max(arena_, offsets_[index] + items_[index].bytes);
    if (!neighbours_.known()) {
      const Placed placed{offsets_[index], items_[index]};
      placed_.insert(std::upper_bound(placed_.begin(), placed_.end(), placed), placed);
    }
  }
  uint64_t arena() const { return arena_; }
  std::vector<uint64_t> take_offsets() { return std::move(offsets_); }

 private:
  static constexpr uint64_t kUnplaced = std::numeric_limits<uint64_t>::max();
  struct Placed {
    uint64_t offset;
    Item item;
    bool operator<(const Placed& other) const { return offset < other.offset; }
  };

  // Collects the placed values that live at the same time, by offset, into busy_.
  void collect(uint32_t index) {
    busy_.clear();
    if (!neighbours_.known()) {
      for (const Placed& other : placed_) {
        if (other.item.overlaps(items_[index])) busy_.emplace_back(other.offset, other.item.bytes);
      }
      return;
    }
    for (uint32_t i : neighbours_.of(index)) {
      if (offsets_[i] != kUnplaced) busy_.emplace_back(offsets_[i], items_[i].bytes);
    }
    std::sort(busy_.begin(), busy_.end());
  }

  // Returns the smallest gap that fits, the lowest among equals, or the end of all values if there
  // is none.
  uint64_t tightest_gap(uint64_t bytes) const {
    uint64_t best = kUnplaced, best_gap = kUnplaced, end = 0;
    for (const auto& [offset, size] : busy_) {
      if (offset > end && offset - end >= bytes && offset - end < best_gap) {
        best = end;
        best_gap = offset - end;
      }
      end = std::max(end, offset + size);
    }
    return best == kUnplaced ? end : best;
  }

  const std::vector<Item>& items_;
  const Neighbours& neighbours_;
  std::vector<uint64_t> offsets_;
  std::vector<Placed> placed_;  // by offset; used if the neighbours are not known
  std::vector<std::pair<uint64_t, uint64_t>> busy_;
  uint64_t arena_ = 0;
};

// The order of placement, as keys to sort by in descending order.
using Key = std::pair<double, double>;
Key by_size(const Item& item) { return {double(item.bytes), double(item.last) - item.first}; }
Key by_area(const Item& item) {
  return {double(item.bytes) * (double(item.last) - item.first + 1), double(item.bytes)};
}
Key by_duration(const Item& item) { return {double(item.last) - item.first, double(item.bytes)}; }
Key by_start(const Item& item) { return {-double(item.first), double(item.bytes)}; }

std::vector<uint32_t> placement_order(const std::vector<Item>& items, Key (*key)(const Item&)) {
  std::vector<std::pair<Key, uint32_t>> keyed;
  for (uint32_t i = 0; i < items.size(); ++i) keyed.emplace_back(key(items[i]), i);
  std::sort(keyed.begin(), keyed.end(), [](const auto& a, const auto& b) {
    return a.first != b.first ? a.first > b.first : a.second < b.second;
  });
  std::vector<uint32_t> order;
  for (const auto& [unused, index] : keyed) {
    if (items[index].bytes > 0) order.push_back(index);
  }
  return order;
}

constexpr uint64_t kAlignment = 16;
// XNNPACK may read a little beyond the end of an activation.
constexpr uint64_t kDelegateSlack = 64;

// Returns the value whose memory each value uses: the value itself, or the one that it is a view
// of.
std::vector<ValueId> find_roots(const Graph& graph) {
  std::vector<ValueId> roots;
  for (size_t i = 0; i < graph.values.size(); ++i) roots.push_back({static_cast<int32_t>(i)});
  for (const Node& node : graph.nodes) {
    if (node.op != Op::kView) continue;
    const auto self = std::get<ValueId>(node.args[pte::ops::View::kSelf]);
    roots[static_cast<size_t>(node.outs[0].index)] = roots[static_cast<size_t>(self.index)];
  }
  return roots;
}

bool is_activation(const Value& value) {
  return value.kind == Value::Kind::kTensor && value.origin == Value::Origin::kNode;
}

class Lifetimes {
 public:
  Lifetimes(const Graph& graph, const std::vector<ValueId>& roots, OutputMemory outputs)
      : graph_(graph), roots_(roots), slots_(graph.values.size(), -1) {
    if (outputs == OutputMemory::kCallers) callers_ = graph.outputs;
    const bool delegates = std::ranges::count(graph.nodes, Op::kDynamicLinears, &Node::op) > 0;
    slack_ = delegates ? kDelegateSlack : 0;
    for (size_t n = 0; n < graph.nodes.size(); ++n) {
      const auto time = static_cast<int32_t>(n);
      for (ValueId id : graph.nodes[n].outs) touch(id, time);
      visit_used_values(graph.nodes[n], [&](ValueId id) { touch(id, time); });
    }
    for (ValueId id : graph.outputs) touch(id, static_cast<int32_t>(graph.nodes.size()));
  }
  const std::vector<Lifetime>& all() const { return lives_; }
  // Returns the index into all() of an activation's root.
  int32_t slot_of(ValueId root) const { return slots_[static_cast<size_t>(root.index)]; }

 private:
  void touch(ValueId id, int32_t time) {
    const ValueId root = roots_[static_cast<size_t>(id.index)];
    if (!is_activation(graph_[root]) || std::ranges::count(callers_, root) > 0) return;
    int32_t& slot = slots_[static_cast<size_t>(root.index)];
    if (slot < 0) {
      slot = static_cast<int32_t>(lives_.size());
      lives_.push_back({graph_.max_bytes(root) + slack_, time, time});
    }
    lives_[static_cast<size_t>(slot)].last = time;
  }

  const Graph& graph_;
  const std::vector<ValueId>& roots_;
  std::vector<ValueId> callers_;  // outputs whose memory belongs to the caller
  uint64_t slack_ = 0;
  std::vector<int32_t> slots_;
  std::vector<Lifetime> lives_;
};

}  // namespace

MemoryPlan plan_memory(const std::vector<Lifetime>& lifetimes, uint64_t alignment) {
  MemoryPlan plan;
  std::vector<Item> items;
  for (const Lifetime& life : lifetimes) {
    items.push_back({life.bytes, life.first, std::max(life.first, life.last)});
  }
  plan.lower_bound = peak_of(items);
  for (Item& item : items) item.bytes = (item.bytes + alignment - 1) / alignment * alignment;
  const uint64_t goal = peak_of(items);

  const Neighbours neighbours(items);
  uint64_t best = std::numeric_limits<uint64_t>::max();
  for (auto key : {by_size, by_area, by_duration, by_start}) {
    Placement placement(items, neighbours);
    for (uint32_t index : placement_order(items, key)) {
      placement.place(index);
      if (placement.arena() >= best) break;
    }
    if (placement.arena() < best) {
      best = placement.arena();
      plan.offsets = placement.take_offsets();
    }
    // With many pairs an order is expensive, so one is tried only.
    if (best == goal || !neighbours.known()) break;
  }
  for (size_t i = 0; i < lifetimes.size(); ++i) {
    if (lifetimes[i].bytes == 0) plan.offsets[i] = 0;
    plan.arena_bytes = std::max(plan.arena_bytes, plan.offsets[i] + items[i].bytes);
  }
  return plan;
}

StatePlan plan_state(std::span<const MethodGraph> methods) {
  StatePlan plan;
  for (const MethodGraph& method : methods) {
    for (size_t i = 0; i < method.graph.values.size(); ++i) {
      const Value& value = method.graph.values[i];
      if (value.origin != Value::Origin::kBuffer) continue;
      const uint64_t offset = align_up(plan.bytes, kAlignment);
      if (!plan.offsets.emplace(value.name, offset).second) continue;
      plan.bytes = offset + method.graph.max_bytes({static_cast<int32_t>(i)});
    }
  }
  return plan;
}

StoragePlan plan_storage(const Graph& graph, const StatePlan& state, OutputMemory outputs) {
  const std::vector<ValueId> roots = find_roots(graph);
  const Lifetimes lifetimes(graph, roots, outputs);
  const MemoryPlan memory = plan_memory(lifetimes.all(), kAlignment);

  StoragePlan plan;
  plan.places.resize(graph.values.size());
  plan.activation_bytes = memory.arena_bytes;
  plan.activation_lower_bound = memory.lower_bound;
  for (size_t i = 0; i < graph.values.size(); ++i) {
    if (graph.values[i].origin != Value::Origin::kBuffer) continue;
    plan.places[i] = pte::Allocation{kStateMemory, state.offsets.at(graph.values[i].name)};
  }
  for (size_t i = 0; i < graph.values.size(); ++i) {
    const int32_t slot = lifetimes.slot_of(roots[i]);
    if (slot >= 0) {
      plan.places[i] =
          pte::Allocation{kActivationMemory, memory.offsets[static_cast<size_t>(slot)]};
    } else if (graph[roots[i]].origin == Value::Origin::kBuffer) {
      plan.places[i] = plan.places[static_cast<size_t>(roots[i].index)];
    }
  }
  return plan;
}

}  // namespace ferry::graph
