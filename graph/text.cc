// to_text writes a graph as stable text.
#include <fmt/format.h>

#include "core/text.h"
#include "graph/dims.h"
#include "graph/graph.h"

namespace ferry::graph {
namespace {

std::string name_of(ValueId id) { return fmt::format("%{}", id.index); }

std::string text_of(const Arg& arg);
std::string text_of(std::monostate) { return "none"; }
std::string text_of(ValueId id) { return name_of(id); }
std::string text_of(const IntArg& arg) {
  return arg.value.valid() ? name_of(arg.value) : fmt::format("{}", arg.number);
}
std::string text_of(double number) { return fmt::format("{:#}", number); }
std::string text_of(const std::string& word) { return quoted(word); }
std::string text_of(bool flag) { return flag ? "true" : "false"; }
std::string text_of(DType dtype) { return std::string(dtype_name(dtype)); }

template <class Items>
std::string joined(const Items& items) {
  std::string text;
  for (const auto& item : items) text += (text.empty() ? "" : ", ") + text_of(item);
  return text;
}

std::string text_of(const std::vector<IntArg>& list) { return "[" + joined(list) + "]"; }
std::string text_of(const TensorListArg& list) { return "{" + joined(list.items) + "}"; }
std::string text_of(const Arg& arg) {
  return std::visit([](const auto& item) { return text_of(item); }, arg);
}

std::string typed(const Graph& graph, ValueId id) {
  const Value& value = graph[id];
  const bool is_int = value.kind == Value::Kind::kInt;
  return name_of(id) + " " + (is_int ? "int" : to_text(graph, value.dtype, value.shape));
}

std::string value_line(const Graph& graph, ValueId id) {
  const Value& value = graph[id];
  const std::string type = typed(graph, id);
  const std::string key =
      value.literal < 0 ? "" : graph.literals[static_cast<size_t>(value.literal)].key;
  switch (value.origin) {
    case Value::Origin::kInput:
      return fmt::format("input {} {}\n", type, printable(value.name));
    case Value::Origin::kWeight:
      return fmt::format("weight {} {}\n", type, printable(value.name));
    case Value::Origin::kLiteral:
      return fmt::format("literal {} {}\n", type, key);
    case Value::Origin::kBuffer:
      return fmt::format("buffer {} {}{}{}\n", type, printable(value.name),
                         key.empty() ? "" : " = " + key, value.stored ? " stored" : "");
    case Value::Origin::kNode:
      break;
  }
  return "";
}

std::string node_line(const Graph& graph, const Node& node) {
  std::string outs;
  for (ValueId out : node.outs) {
    const bool fresh = graph[out].origin == Value::Origin::kNode;
    outs += (outs.empty() ? "" : ", ") + (fresh ? typed(graph, out) : name_of(out));
  }
  const std::string layer = node.layer < 0 ? "" : fmt::format("  # layer {}", node.layer);
  return fmt::format("{} = {}({}){}\n", outs, op_name(node.op), joined(node.args), layer);
}

}  // namespace

std::string to_text(const Graph& graph) {
  std::string text;
  for (const Symbol& symbol : graph.symbols) {
    text += fmt::format("symbol {} <= {} = {}\n", symbol.name, symbol.max,
                        symbol.value.valid() ? name_of(symbol.value) : "none");
  }
  for (size_t i = 0; i < graph.values.size(); ++i) {
    text += value_line(graph, {static_cast<int32_t>(i)});
  }
  for (const Node& node : graph.nodes) text += node_line(graph, node);
  for (ValueId id : graph.outputs) {
    text += fmt::format("output {} {}\n", name_of(id), printable(graph[id].name));
  }
  for (const Probe& probe : graph.probes) {
    text += fmt::format("probe {} {}\n", name_of(probe.value), printable(probe.name));
  }
  return text;
}

}  // namespace ferry::graph
