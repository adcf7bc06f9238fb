// remove_dead removes all nodes and values that outputs, probes and buffers do not need, and
// renumbers the rest.
#include <optional>
#include <utility>
#include <vector>

#include "graph/graph.h"
#include "graph/passes/passes.h"

namespace ferry::graph {
namespace {

class Liveness {
 public:
  explicit Liveness(const Graph& graph)
      : graph_(graph), values_(graph.values.size()), nodes_(graph.nodes.size()) {
    for (ValueId id : graph.inputs) mark(id);
    for (ValueId id : graph.outputs) mark(id);
    for (const Probe& probe : graph.probes) mark(probe.value);
    // The value of a symbol lives as long as a shape has the symbol, and may need other symbols in
    // turn.
    do {
      sweep();
    } while (mark_symbols());
  }

  bool value(size_t index) const { return values_[index]; }
  bool node(size_t index) const { return nodes_[index]; }
  bool symbol(size_t index) const { return symbols_[index]; }

 private:
  void mark(ValueId id) { values_[static_cast<size_t>(id.index)] = true; }

  bool is_needed(const Node& node) const {
    for (ValueId out : node.outs) {
      if (values_[static_cast<size_t>(out.index)]) return true;
    }
    return !written_buffers(graph_, node).empty();
  }

  void sweep() {
    for (size_t i = graph_.nodes.size(); i-- > 0;) {
      const Node& node = graph_.nodes[i];
      if (nodes_[i] || !is_needed(node)) continue;
      nodes_[i] = true;
      for (ValueId out : node.outs) mark(out);
      for (ValueId id : used_values(node)) mark(id);
    }
  }

  // Returns true if a value became live.
  bool mark_symbols() {
    symbols_.assign(graph_.symbols.size(), false);
    for (size_t i = 0; i < graph_.values.size(); ++i) {
      if (!values_[i]) continue;
      for (const Dim& dim : graph_.values[i].shape) {
        if (!dim.is_static()) symbols_[static_cast<size_t>(dim.symbol)] = true;
      }
    }
    bool changed = false;
    for (size_t i = 0; i < symbols_.size(); ++i) {
      const ValueId id = graph_.symbols[i].value;
      if (!symbols_[i] || !id.valid() || values_[static_cast<size_t>(id.index)]) continue;
      mark(id);
      changed = true;
    }
    return changed;
  }

  const Graph& graph_;
  std::vector<bool> values_, nodes_, symbols_;
};

// Returns the new index of every kept element, -1 for the others.
template <class Kept>
std::vector<int32_t> numbering(size_t count, const Kept& kept) {
  std::vector<int32_t> numbers(count, -1);
  int32_t next = 0;
  for (size_t i = 0; i < count; ++i) {
    if (kept(i)) numbers[i] = next++;
  }
  return numbers;
}

// Returns the elements of `items` that have a new index.
template <class Item>
std::vector<Item> kept_items(std::vector<Item> items, const std::vector<int32_t>& numbers) {
  std::vector<Item> out;
  for (size_t i = 0; i < items.size(); ++i) {
    if (numbers[i] >= 0) out.push_back(std::move(items[i]));
  }
  return out;
}

void renumber(const std::vector<int32_t>& numbers, int32_t& index) {
  if (index >= 0) index = numbers[static_cast<size_t>(index)];
}

// A number of windows in a dimension that no value has any more is a symbol like any other.
void renumber_windows(const std::vector<int32_t>& numbers, std::optional<Windows>& windows) {
  if (!windows || windows->of.is_static()) return;
  renumber(numbers, windows->of.symbol);
  if (windows->of.symbol < 0) windows.reset();
}

}  // namespace

Graph remove_dead(Graph graph) {
  const Liveness live(graph);
  std::vector<bool> used_literals(graph.literals.size());
  for (size_t i = 0; i < graph.values.size(); ++i) {
    const int32_t literal = graph.values[i].literal;
    if (live.value(i) && literal >= 0) used_literals[static_cast<size_t>(literal)] = true;
  }
  const auto values = numbering(graph.values.size(), [&](size_t i) { return live.value(i); });
  const auto nodes = numbering(graph.nodes.size(), [&](size_t i) { return live.node(i); });
  const auto symbols = numbering(graph.symbols.size(), [&](size_t i) { return live.symbol(i); });
  const auto literals =
      numbering(graph.literals.size(), [&](size_t i) { return bool{used_literals[i]}; });

  graph.values = kept_items(std::move(graph.values), values);
  graph.nodes = kept_items(std::move(graph.nodes), nodes);
  graph.symbols = kept_items(std::move(graph.symbols), symbols);
  graph.literals = kept_items(std::move(graph.literals), literals);
  const auto move_id = [&](ValueId& id) { renumber(values, id.index); };
  for (Value& value : graph.values) {
    renumber(literals, value.literal);
    for (Dim& dim : value.shape) renumber(symbols, dim.symbol);
  }
  for (Node& node : graph.nodes) {
    visit_used_values(node, move_id);
    for (ValueId& out : node.outs) move_id(out);
  }
  for (Symbol& symbol : graph.symbols) {
    move_id(symbol.value);
    renumber_windows(symbols, symbol.windows);
  }
  for (ValueId& id : graph.inputs) move_id(id);
  for (ValueId& id : graph.outputs) move_id(id);
  for (Probe& probe : graph.probes) move_id(probe.value);
  return graph;
}

}  // namespace ferry::graph
