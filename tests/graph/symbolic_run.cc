#include "tests/graph/symbolic_run.h"

#include <gtest/gtest.h>

#include <functional>

namespace ferry::graph {
namespace {

// Terms grow exponentially with depth, so a long term is replaced by its hash.
std::string shortened(const std::string& term) {
  if (term.size() < 120) return term;
  return term.substr(0, term.find('(')) + "#" + std::to_string(std::hash<std::string>()(term));
}

class Run {
 public:
  Run(const Graph& graph, const Terms& inputs) : graph_(graph), inputs_(inputs) {
    for (size_t i = 0; i < graph.values.size(); ++i) terms_.push_back(initial(graph.values[i]));
  }

  SymbolicRun run() {
    for (const Node& node : graph_.nodes) execute(node);
    SymbolicRun result;
    for (ValueId id : graph_.outputs) result.outputs[graph_[id].name] = term(id);
    for (const Probe& probe : graph_.probes) result.probes[probe.name] = term(probe.value);
    for (size_t i = 0; i < graph_.values.size(); ++i) {
      if (graph_.values[i].origin == Value::Origin::kBuffer) {
        result.state[graph_.values[i].name] = terms_[i];
      }
    }
    return result;
  }

 private:
  std::string initial(const Value& value) const {
    switch (value.origin) {
      case Value::Origin::kInput: {
        const auto found = inputs_.find(value.name);
        EXPECT_NE(found, inputs_.end()) << "no input " << value.name;
        return found == inputs_.end() ? "?" : found->second;
      }
      case Value::Origin::kLiteral:
        return graph_.literals[static_cast<size_t>(value.literal)].key;
      case Value::Origin::kWeight:
      case Value::Origin::kBuffer:
        return value.name;
      case Value::Origin::kNode:
        break;
    }
    return "undefined";
  }

  std::string term(ValueId id) const { return terms_[static_cast<size_t>(id.index)]; }

  std::string show(std::monostate) const { return "none"; }
  std::string show(ValueId id) const { return term(id); }
  std::string show(const IntArg& arg) const {
    return arg.value.valid() ? term(arg.value) : std::to_string(arg.number);
  }
  std::string show(const std::vector<IntArg>& list) const {
    std::string text = "[";
    for (const IntArg& item : list) text += show(item) + ",";
    return text + "]";
  }
  std::string show(const TensorListArg& list) const {
    std::string text = "{";
    for (ValueId id : list.items) text += term(id) + ",";
    return text + "}";
  }
  std::string show(double number) const { return std::to_string(number); }
  std::string show(bool flag) const { return flag ? "true" : "false"; }
  std::string show(const std::string& word) const { return word; }
  std::string show(DType dtype) const { return std::string(dtype_name(dtype)); }
  std::string text(const Arg& arg) const {
    return std::visit([this](const auto& item) { return show(item); }, arg);
  }

  std::string size_of(const Node& node) const {
    const Dims& shape = graph_[std::get<ValueId>(node.args[0])].shape;
    const Dim& dim = shape.at(static_cast<size_t>(std::get<IntArg>(node.args[1]).number));
    if (dim.is_static()) return std::to_string(dim.base);
    return graph_.symbols[static_cast<size_t>(dim.symbol)].name + "*" + std::to_string(dim.scale) +
           "+" + std::to_string(dim.base);
  }

  void execute(const Node& node) {
    std::string call(op_name(node.op));
    call += "(";
    for (const Arg& arg : node.args) call += text(arg) + ";";
    call = shortened(call + ")");
    if (node.op == Op::kSymSize) call = size_of(node);
    if (node.op == Op::kFallback) call = term(std::get<ValueId>(node.args[0]));  // is a copy
    if (node.op == Op::kUpdateCache) {
      terms_[static_cast<size_t>(std::get<ValueId>(node.args[1]).index)] = call;
    }
    for (size_t i = 0; i < node.outs.size(); ++i) {
      terms_[static_cast<size_t>(node.outs[i].index)] = i == 0 ? call : call + std::to_string(i);
    }
  }

  const Graph& graph_;
  const Terms& inputs_;
  std::vector<std::string> terms_;
};

}  // namespace

SymbolicRun run_symbolically(const Graph& graph, const Terms& inputs) {
  return Run(graph, inputs).run();
}

}  // namespace ferry::graph
