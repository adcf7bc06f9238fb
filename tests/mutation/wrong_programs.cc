// Linked into ferry_wrong, which is ferry with lower() wrapped by the linker (--wrap): the graph of
// every program is changed in one manner, named by the environment variable FERRY_WRONG, before it
// is lowered. So the program itself needs no seam, and `ferry_wrong verify` is what Ferry would be
// if its converters had that defect everywhere. The names are those of program_kinds.cc.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "graph/passes/passes.h"

namespace ferry {
namespace mutation {
namespace {

using Indices = std::vector<size_t>;

const graph::ValueId* tensor_arg(const graph::Node& node, size_t i) {
  return std::get_if<graph::ValueId>(&node.args[i]);
}

// Nodes of `op` for which `holds`, in order.
template <class Predicate>
Indices find_nodes(const graph::Graph& graph, graph::Op op, const Predicate& holds) {
  Indices found;
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    if (graph.nodes[i].op == op && holds(graph.nodes[i])) found.push_back(i);
  }
  return found;
}

bool any(const graph::Node&) { return true; }

// Puts a node that makes one value in front of node `before`.
graph::ValueId insert(graph::Graph& graph, size_t before, graph::Op op,
                      std::vector<graph::Arg> args, const kernels::Value& like) {
  kernels::Value value = like;
  value.name.clear();
  value.origin = kernels::Value::Origin::kNode;
  const graph::ValueId id{static_cast<int32_t>(graph.values.size())};
  graph.values.push_back(std::move(value));
  const graph::Node node{
      .op = op, .args = std::move(args), .outs = {id}, .layer = graph.nodes[before].layer};
  graph.nodes.insert(graph.nodes.begin() + static_cast<std::ptrdiff_t>(before), node);
  return id;
}

kernels::Value int_value() {
  kernels::Value value;
  value.kind = kernels::Value::Kind::kInt;
  value.dtype = DType::kI64;
  return value;
}

graph::IntArg shifted(graph::Graph& graph, size_t before, const graph::IntArg& arg, int64_t by) {
  return insert(graph, before, graph::Op::kIntAdd, {arg, graph::IntArg(by)}, int_value());
}

// -- states

// where(is_start, 0, state) of the last buffer of that name becomes the state, always.
void keep_state(graph::Graph& graph, const std::string& buffer) {
  const Indices nodes = find_nodes(graph, graph::Op::kWhere, [&](const graph::Node& node) {
    const graph::ValueId* state = tensor_arg(node, 2);
    return state && graph[*state].origin == kernels::Value::Origin::kBuffer &&
           graph[*state].name.ends_with(buffer);
  });
  if (!nodes.empty()) graph.nodes[nodes.back()].args[1] = graph.nodes[nodes.back()].args[2];
}

void keep_conv_state(graph::Graph& graph) { keep_state(graph, ".conv_state"); }
void keep_recurrent_state(graph::Graph& graph) { keep_state(graph, ".recurrent_state"); }

// The inputs before the present ones are taken from one place earlier.
void take_older_inputs(graph::Graph& graph) {
  std::map<int32_t, bool> past;
  for (const graph::Node& node : graph.nodes) {
    if (node.op != graph::Op::kWhere) continue;
    const graph::ValueId* state = tensor_arg(node, 2);
    if (state && graph[*state].name.ends_with(".conv_state")) past[node.outs[0].index] = true;
  }
  const Indices nodes = find_nodes(graph, graph::Op::kSlice, [&](const graph::Node& node) {
    return past.contains(tensor_arg(node, 0)->index);
  });
  if (nodes.empty()) return;
  std::vector<graph::Arg>& args = graph.nodes[nodes.back()].args;
  args[2] = graph::IntArg(0);
  args[3] = graph::IntArg(std::get<graph::IntArg>(args[3]).number - 1);
}

// Keys and values of the last layer with attention go one position too far.
void write_cache_late(graph::Graph& graph) {
  const Indices all = find_nodes(graph, graph::Op::kUpdateCache, any);
  if (all.empty()) return;
  const int32_t layer = graph.nodes[all.back()].layer;
  for (size_t i = graph.nodes.size(); i-- > 0;) {
    if (graph.nodes[i].op != graph::Op::kUpdateCache || graph.nodes[i].layer != layer) continue;
    const graph::IntArg start = std::get<graph::IntArg>(graph.nodes[i].args[2]);
    const graph::IntArg late = shifted(graph, i, start, 1);
    graph.nodes[i + 1].args[2] = late;
  }
}

// -- positions

bool is_table(const graph::Graph& graph, const graph::Node& node) {
  return node.op == graph::Op::kSlice &&
         graph[*tensor_arg(node, 0)].origin == kernels::Value::Origin::kLiteral;
}

// The rows of every RoPE table begin one position later, for queries and keys alike.
void shift_rope(graph::Graph& graph) {
  for (size_t i = graph.nodes.size(); i-- > 0;) {
    if (!is_table(graph, graph.nodes[i])) continue;
    const std::vector<graph::Arg> args = graph.nodes[i].args;
    const graph::IntArg start = shifted(graph, i, std::get<graph::IntArg>(args[2]), 1);
    const graph::IntArg end = shifted(graph, i + 1, std::get<graph::IntArg>(args[3]), 1);
    graph.nodes[i + 2].args[2] = start;
    graph.nodes[i + 2].args[3] = end;
  }
}

// The same for the queries of the last layer that is turned: its first two products with a table.
void shift_rope_of_queries(graph::Graph& graph) {
  std::map<int32_t, graph::Node> tables;
  for (const graph::Node& node : graph.nodes) {
    if (is_table(graph, node)) tables[node.outs[0].index] = node;
  }
  const auto turns = [&](const graph::Node& node) {
    const graph::ValueId* table = node.args.size() > 1 ? tensor_arg(node, 1) : nullptr;
    return table && tables.contains(table->index);
  };
  const Indices products = find_nodes(graph, graph::Op::kMul, turns);
  if (products.empty()) return;
  const int32_t layer = graph.nodes[products.back()].layer;
  Indices queries;
  for (size_t i : products) {
    if (graph.nodes[i].layer == layer && queries.size() < 2) queries.push_back(i);
  }
  for (size_t n = queries.size(); n-- > 0;) {
    const size_t i = queries[n];
    const graph::ValueId table = *tensor_arg(graph.nodes[i], 1);
    const graph::Node rows = tables.at(table.index);
    const graph::IntArg start = shifted(graph, i, std::get<graph::IntArg>(rows.args[2]), 1);
    const graph::IntArg end = shifted(graph, i + 1, std::get<graph::IntArg>(rows.args[3]), 1);
    const graph::ValueId late = insert(graph, i + 2, graph::Op::kSlice,
                                       {rows.args[0], rows.args[1], start, end, rows.args[4]},
                                       kernels::Value(graph[table]));
    graph.nodes[i + 3].args[1] = late;
  }
}

// -- masks and scales

Indices causal_nodes(const graph::Graph& graph) {
  return find_nodes(graph, graph::Op::kSdpa,
                    [](const graph::Node& node) { return std::get<bool>(node.args[6]); });
}

// Additive masks are made of comparisons of the distance with a number.
bool move_comparison(graph::Graph& graph, graph::Op op, int64_t by) {
  const Indices nodes = find_nodes(graph, op, any);
  if (nodes.empty()) return false;
  graph::Arg& bound = graph.nodes[nodes.back()].args[1];
  bound = graph::IntArg(std::get<graph::IntArg>(bound).number + by);
  return true;
}

// Every query of the last layer sees the key after its own.
void widen_causal_mask(graph::Graph& graph) {
  const Indices nodes = causal_nodes(graph);
  if (nodes.empty()) {
    move_comparison(graph, graph::Op::kGeScalar, -1);
    return;
  }
  const graph::IntArg start = std::get<graph::IntArg>(graph.nodes[nodes.back()].args[3]);
  const graph::IntArg late = shifted(graph, nodes.back(), start, 1);
  graph.nodes[nodes.back() + 1].args[3] = late;
}

// No query sees its own key; where the operator knows positions only, those of a first call do.
void narrow_causal_mask(graph::Graph& graph) {
  const Indices nodes = causal_nodes(graph);
  if (nodes.empty()) {
    move_comparison(graph, graph::Op::kGeScalar, 1);
    return;
  }
  const size_t at = nodes.back();
  const graph::IntArg before =
      shifted(graph, at, std::get<graph::IntArg>(graph.nodes[at].args[3]), -1);
  const graph::ValueId start =
      insert(graph, at + 1, graph::Op::kIntMax, {before, graph::IntArg(0)}, int_value());
  graph.nodes[at + 2].args[3] = graph::IntArg(start);
}

void widen_window(graph::Graph& graph) { move_comparison(graph, graph::Op::kLtScalar, 1); }
void narrow_window(graph::Graph& graph) { move_comparison(graph, graph::Op::kLtScalar, -1); }

// 1/sqrt(d) of the last layer times 1.25.
void change_attention_scale(graph::Graph& graph) {
  const Indices nodes = find_nodes(graph, graph::Op::kSdpa, any);
  if (nodes.empty()) return;
  std::vector<graph::Arg>& args = graph.nodes[nodes.back()].args;
  const double width =
      static_cast<double>(graph[std::get<graph::ValueId>(args[0])].shape.back().base);
  const double* stated = std::get_if<double>(&args[7]);
  args[7] = 1.25 * (stated ? *stated : 1 / std::sqrt(width));
}

void drop_embedding_scale(graph::Graph& graph) {
  const Indices nodes = find_nodes(graph, graph::Op::kMulScalar,
                                   [](const graph::Node& node) { return node.layer == -1; });
  if (!nodes.empty()) graph.nodes[nodes.front()].args[1] = 1.0;
}

// Of the queries of linear attention.
void drop_delta_scale(graph::Graph& graph) {
  const Indices rules = find_nodes(graph, graph::Op::kGatedDeltaRule, any);
  if (rules.empty()) return;
  const int32_t layer = graph.nodes[rules.back()].layer;
  const Indices nodes = find_nodes(graph, graph::Op::kMulScalar,
                                   [&](const graph::Node& node) { return node.layer == layer; });
  if (!nodes.empty()) graph.nodes[nodes.front()].args[1] = 1.0;
}

const std::map<std::string, void (*)(graph::Graph&)>& changes() {
  static const std::map<std::string, void (*)(graph::Graph&)> table = {
      {"program_conv_state_kept", keep_conv_state},
      {"program_recurrent_state_kept", keep_recurrent_state},
      {"program_conv_inputs_one_older", take_older_inputs},
      {"program_cache_one_position_late", write_cache_late},
      {"program_rope_one_position_late", shift_rope},
      {"program_rope_of_queries_late", shift_rope_of_queries},
      {"program_causal_mask_wide", widen_causal_mask},
      {"program_causal_mask_narrow", narrow_causal_mask},
      {"program_window_mask_wide", widen_window},
      {"program_window_mask_narrow", narrow_window},
      {"program_attention_scale", change_attention_scale},
      {"program_embedding_scale_dropped", drop_embedding_scale},
      {"program_delta_scale_dropped", drop_delta_scale},
  };
  return table;
}

}  // namespace

Result<std::vector<graph::Model>> real_shard(const graph::Model& model, int32_t count) __asm__(
    "__real__ZN5ferry5graph5shardERKNS0_5ModelEi");
Result<std::vector<graph::Model>> wrapped_shard(const graph::Model& model, int32_t count) __asm__(
    "__wrap__ZN5ferry5graph5shardERKNS0_5ModelEi");

Result<std::vector<graph::Model>> wrapped_shard(const graph::Model& model, int32_t count) {
  const char* name = std::getenv("FERRY_WRONG");
  const auto change = changes().find(name ? name : "");
  if (change == changes().end()) return fail(ErrorCode::kUsage, "FERRY_WRONG: no such change");
  graph::Model wrong = model;
  for (graph::MethodGraph& method : wrong.methods) {
    change->second(method.graph);
    FERRY_RETURN_IF_ERROR(graph::validate(method.graph));
  }
  return real_shard(wrong, count);
}

}  // namespace mutation
}  // namespace ferry
