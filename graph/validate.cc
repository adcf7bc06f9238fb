// validate checks the invariants of a graph.
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <set>

#include "core/checked.h"
#include "core/text.h"
#include "formats/pte/operator_args.h"
#include "graph/dims.h"
#include "graph/graph.h"
#include "graph/shape_inference.h"

namespace ferry::graph {
namespace {

Failure broken(std::string message) {
  return fail(ErrorCode::kInternal, "graph: " + std::move(message));
}

class Validator {
 public:
  explicit Validator(const Graph& graph)
      : graph_(graph), defined_(graph.values.size(), false), memory_of_(graph.values.size()) {}

  Status run() {
    FERRY_RETURN_IF_ERROR(check_symbols());
    for (size_t i = 0; i < graph_.values.size(); ++i) {
      FERRY_RETURN_IF_ERROR(check_value({static_cast<int32_t>(i)}));
    }
    FERRY_RETURN_IF_ERROR(check_inputs());
    for (const Node& node : graph_.nodes) FERRY_RETURN_IF_ERROR(check_node(node));
    return check_ends();
  }

 private:
  bool exists(ValueId id) const {
    return id.valid() && static_cast<size_t>(id.index) < graph_.values.size();
  }
  bool is_defined(ValueId id) const {
    return exists(id) && defined_[static_cast<size_t>(id.index)];
  }

  // Planned memory is sized by the bounds, so that a number of windows must not exceed its own.
  bool is_bounded(const Symbol& symbol) const {
    if (!symbol.windows) return true;
    const Windows& w = *symbol.windows;
    const bool known = w.of.is_static() || static_cast<size_t>(w.of.symbol) < graph_.symbols.size();
    return known && w.step > 0 &&
           (graph_.max_of(w.of) + 2 * w.padding - w.size) / w.step + 1 <= symbol.max;
  }

  Status check_symbols() const {
    for (const Symbol& symbol : graph_.symbols) {
      if (symbol.max < 1) return broken(fmt::format("symbol {} has no bound", symbol.name));
      if (!is_bounded(symbol)) return broken(fmt::format("{} exceeds its bound", symbol.name));
      if (!symbol.value.valid()) continue;
      if (!exists(symbol.value) || graph_[symbol.value].kind != Value::Kind::kInt) {
        return broken(fmt::format("symbol {} has no Int value", symbol.name));
      }
    }
    return {};
  }

  Status check_value(ValueId id) {
    const Value& value = graph_[id];
    memory_of_[static_cast<size_t>(id.index)] = id;
    bool is_static = true;
    for (const Dim& dim : value.shape) {
      is_static = is_static && dim.is_static();
      if (!dim.is_static() && static_cast<size_t>(dim.symbol) >= graph_.symbols.size()) {
        return broken(fmt::format("%{} has an unknown symbol", id.index));
      }
      if (dim_min(dim) < 0) return broken(fmt::format("%{} has a negative size", id.index));
    }
    if (!has_sane_size(value)) return broken(fmt::format("%{} is too large", id.index));
    if (value.origin == Value::Origin::kNode) return {};
    defined_[static_cast<size_t>(id.index)] = true;
    if (value.kind == Value::Kind::kInt) {
      return broken(fmt::format("%{} is an integer that no node makes", id.index));
    }
    const bool is_literal = value.origin == Value::Origin::kLiteral;
    if (!is_literal && !names_.insert(value.name).second) {
      return broken(fmt::format("two values are named {}", quoted(value.name)));
    }
    if (value.origin != Value::Origin::kInput && !is_static) {
      return broken(fmt::format("%{} needs a static shape", id.index));
    }
    return check_literal(id, is_literal);
  }

  // Sizes come from configs. Their products must not wrap around in Graph::max_bytes.
  bool has_sane_size(const Value& value) const {
    std::optional<int64_t> bits = dtype_bits(value.dtype);
    for (const Dim& dim : value.shape) {
      const int64_t symbol =
          dim.is_static() ? 0 : graph_.symbols[static_cast<size_t>(dim.symbol)].max;
      const std::optional<int64_t> dynamic = checked_mul(dim.scale, symbol);
      const std::optional<int64_t> size = dynamic ? checked_add(*dynamic, dim.base) : dynamic;
      bits = bits && size ? checked_mul(*bits, *size) : std::nullopt;
    }
    return bits.has_value();
  }

  Status check_literal(ValueId id, bool required) const {
    const Value& value = graph_[id];
    if (value.literal < 0 && !required) return {};
    if (value.literal < 0 || static_cast<size_t>(value.literal) >= graph_.literals.size()) {
      return broken(fmt::format("%{} has no literal", id.index));
    }
    if (graph_.literals[static_cast<size_t>(value.literal)].bytes != graph_.max_bytes(id)) {
      return broken(fmt::format("the literal of %{} has another size", id.index));
    }
    return {};
  }

  Status check_inputs() const {
    std::set<ValueId> listed;
    for (ValueId id : graph_.inputs) {
      if (!exists(id) || graph_[id].origin != Value::Origin::kInput || !listed.insert(id).second) {
        return broken(fmt::format("input %{} is none, or listed twice", id.index));
      }
    }
    for (size_t i = 0; i < graph_.values.size(); ++i) {
      const bool is_input = graph_.values[i].origin == Value::Origin::kInput;
      if (is_input && !listed.contains({static_cast<int32_t>(i)})) {
        return broken(fmt::format("input %{} is not listed", i));
      }
    }
    return {};
  }

  Status check_node(const Node& node) {
    FERRY_RETURN_IF_ERROR(check_uses(node));
    const Types types = FERRY_TRY(infer_types(graph_, forms_, node));
    if (types.size() != node.outs.size()) {
      return broken(fmt::format("{} has {} results", op_name(node.op), types.size()));
    }
    if (node.layer < -1 || node.layer > graph_.num_layers) {
      return broken(fmt::format("{} is in layer {}", op_name(node.op), node.layer));
    }
    for (size_t i = 0; i < types.size(); ++i)
      FERRY_RETURN_IF_ERROR(check_out(node, node.outs[i], types[i]));
    FERRY_RETURN_IF_ERROR(check_mutated(node));
    if (node.op == Op::kView) {
      memory_of_[static_cast<size_t>(node.outs[0].index)] =
          memory_of(std::get<ValueId>(node.args[pte::ops::View::kSelf]));
    }
    forms_.define(graph_, node);
    return {};
  }

  Status check_uses(const Node& node) const {
    for (ValueId id : used_values(node)) {
      if (!is_defined(id)) {
        return broken(fmt::format("{} uses %{} before it is made", op_name(node.op), id.index));
      }
    }
    return {};
  }

  Status check_mutated(const Node& node) const {
    for (ValueId id : written_buffers(graph_, node)) {
      if (graph_[id].origin != Value::Origin::kBuffer) {
        return broken(fmt::format("{} writes %{}, no buffer", op_name(node.op), id.index));
      }
    }
    return {};
  }

  Status check_out(const Node& node, ValueId id, const ValueType& type) {
    if (!exists(id)) return broken(fmt::format("{} has no out", op_name(node.op)));
    const Value& out = graph_[id];
    if (out.kind != type.kind || out.dtype != type.dtype || out.shape != type.shape ||
        !carries_axes(out.shape, type.shape)) {
      return broken(fmt::format("%{} is {}, but {} makes {}", id.index,
                                to_text(graph_, out.dtype, out.shape), op_name(node.op),
                                to_text(graph_, type.dtype, type.shape)));
    }
    if (out.origin == Value::Origin::kBuffer) {
      if (node.op == Op::kCopy) {
        if (id == std::get<ValueId>(node.args[pte::ops::Copy::kSelf])) return {};
      } else if (!reads_memory_of(node, id)) {
        return {};
      }
      return broken(fmt::format("{} reads and writes %{}", op_name(node.op), id.index));
    }
    if (out.origin != Value::Origin::kNode || node.op == Op::kCopy || is_defined(id)) {
      return broken(fmt::format("{} may not write %{}", op_name(node.op), id.index));
    }
    defined_[static_cast<size_t>(id.index)] = true;
    return {};
  }

  ValueId memory_of(ValueId id) const { return memory_of_[static_cast<size_t>(id.index)]; }

  bool reads_memory_of(const Node& node, ValueId buffer) const {
    for (ValueId id : used_values(node)) {
      if (memory_of(id) == buffer) return true;
    }
    return false;
  }

  Status check_ends() const {
    for (ValueId id : graph_.outputs) {
      if (!is_defined(id) || graph_[id].kind != Value::Kind::kTensor) {
        return broken(fmt::format("output %{} is not made", id.index));
      }
    }
    for (const Probe& probe : graph_.probes) {
      if (!is_defined(probe.value)) return broken(fmt::format("probe {} is not made", probe.name));
    }
    for (const Symbol& symbol : graph_.symbols) {
      if (symbol.value.valid() && !is_defined(symbol.value)) {
        return broken(fmt::format("the value of symbol {} is not made", symbol.name));
      }
    }
    return {};
  }

  const Graph& graph_;
  std::vector<bool> defined_;
  std::vector<ValueId> memory_of_;  // the value that a view is of, or the value itself
  std::set<std::string> names_;
  IntForms forms_;
};

}  // namespace

Status validate(const Graph& graph) { return Validator(graph).run(); }

}  // namespace ferry::graph
