// infer_types checks arguments against the operator's schema, then applies the rule of the
// operator.
#include "graph/shape_inference.h"

#include <fmt/format.h>

#include "graph/dims.h"

namespace ferry::graph {
namespace {

using pte::ArgKind;
using pte::ArgSchema;

bool is_value(const Graph& graph, ValueId id, Value::Kind kind) {
  return id.valid() && static_cast<size_t>(id.index) < graph.values.size() &&
         graph[id].kind == kind;
}

bool is_int(const Graph& graph, const IntArg& arg) {
  return arg.value == ValueId{} || is_value(graph, arg.value, Value::Kind::kInt);
}

bool fits(const Graph& graph, const Arg& arg, const ArgSchema& schema) {
  if (std::holds_alternative<std::monostate>(arg)) return schema.optional;
  const auto* integer = std::get_if<IntArg>(&arg);
  switch (schema.kind) {
    case ArgKind::kTensor: {
      const auto* id = std::get_if<ValueId>(&arg);
      return id != nullptr && is_value(graph, *id, Value::Kind::kTensor);
    }
    case ArgKind::kTensorList: {
      const auto* list = std::get_if<TensorListArg>(&arg);
      if (list == nullptr) return false;
      for (ValueId id : list->items) {
        if (!is_value(graph, id, Value::Kind::kTensor)) return false;
      }
      return true;
    }
    case ArgKind::kInt:
      return std::holds_alternative<DType>(arg) || (integer != nullptr && is_int(graph, *integer));
    case ArgKind::kIntList: {
      const auto* list = std::get_if<std::vector<IntArg>>(&arg);
      if (list == nullptr) return false;
      for (const IntArg& item : *list) {
        if (!is_int(graph, item)) return false;
      }
      return true;
    }
    case ArgKind::kFloat:
      return std::holds_alternative<double>(arg);
    case ArgKind::kBool:
      return std::holds_alternative<bool>(arg);
    case ArgKind::kScalar:
      return std::holds_alternative<double>(arg) || std::holds_alternative<bool>(arg) ||
             (integer != nullptr && is_int(graph, *integer));
    case ArgKind::kString:
      return std::holds_alternative<std::string>(arg);
    case ArgKind::kOptionalTensorList:
    case ArgKind::kBoolList:
    case ArgKind::kFloatList:
      return false;  // no operator of graphs has one
  }
  return false;
}

Status check_args(const Graph& graph, const Node& node) {
  const OpInfo& info = op_info(node.op);
  const pte::OpSchema* schema = op_schema(node.op);
  if (schema == nullptr) return fail(ErrorCode::kInternal, "not in the operator table");
  size_t next = 0;
  for (const ArgSchema& arg : schema->args) {
    if (arg.out) continue;
    if (next >= node.args.size() || !fits(graph, node.args[next], arg)) {
      return fail(ErrorCode::kInternal,
                  fmt::format("argument {} ('{}') is absent or of another kind", next, arg.name));
    }
    ++next;
  }
  if (node.args.size() != next + info.pseudo_args) {
    return fail(ErrorCode::kInternal, fmt::format("takes {} arguments, has {}",
                                                  next + info.pseudo_args, node.args.size()));
  }
  return {};
}

Result<Types> infer(const Graph& graph, const IntForms& forms, const Node& node) {
  FERRY_RETURN_IF_ERROR(check_args(graph, node));
  return op_info(node.op).rule({graph, forms, node});
}

}  // namespace

Result<Types> infer_types(const Graph& graph, const IntForms& forms, const Node& node) {
  Result<Types> types = infer(graph, forms, node);
  if (types) return types;
  Error error = std::move(types).error();
  std::string shapes;
  for (const Arg& arg : node.args) {
    const auto* id = std::get_if<ValueId>(&arg);
    if (id == nullptr || !is_value(graph, *id, Value::Kind::kTensor)) continue;
    shapes += (shapes.empty() ? "" : ", ") + to_text(graph, graph[*id].dtype, graph[*id].shape);
  }
  error.message = fmt::format("graph: {} on ({}): {}", op_name(node.op), shapes, error.message);
  return Failure(std::move(error));
}

}  // namespace ferry::graph
