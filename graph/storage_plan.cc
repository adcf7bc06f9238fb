#include "graph/storage_plan.h"

#include <algorithm>

#include "core/checked.h"
#include "graph/memory_plan.h"
#include "graph/node_values.h"

namespace ferry::graph {

namespace {

constexpr uint64_t kAlignment = 16;
// XNNPACK may read a little beyond the end of an activation.
constexpr uint64_t kDelegateSlack = 64;

// The value whose memory each value uses: itself, or what it is a view of.
std::vector<ValueId> find_roots(const Graph& graph) {
  std::vector<ValueId> roots;
  for (size_t i = 0; i < graph.values.size(); ++i) roots.push_back({static_cast<int32_t>(i)});
  for (const Node& node : graph.nodes) {
    if (node.op != Op::kView) continue;
    const auto self = std::get<ValueId>(node.args[0]);
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
  // Index into all() of an activation's root.
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
  std::vector<ValueId> callers_;  // outputs that need no memory of ours
  uint64_t slack_ = 0;
  std::vector<int32_t> slots_;
  std::vector<Lifetime> lives_;
};

}  // namespace

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
