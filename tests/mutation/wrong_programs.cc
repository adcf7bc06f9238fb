// Linked into ferry_wrong, which is ferry with shard() wrapped by the linker (--wrap): the graph of
// every program is changed in one manner before it is lowered. The environment variable FERRY_WRONG
// names the manner. So the program itself needs no code for tests, and `ferry_wrong verify` behaves
// as Ferry would with that error in its converters. The names are those of program_kinds.cc.
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
using namespace graph;  // the whole file edits graphs
namespace {

using Indices = std::vector<size_t>;

const ValueId* tensor_arg(const Node& node, size_t i) {
  return std::get_if<ValueId>(&node.args[i]);
}

// Returns the nodes of `op` for which `holds`, in order.
template <class Predicate>
Indices find_nodes(const Graph& graph, Op op, const Predicate& holds) {
  Indices found;
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    if (graph.nodes[i].op == op && holds(graph.nodes[i])) found.push_back(i);
  }
  return found;
}

bool any(const Node&) { return true; }

// Inserts a node that makes one value before node `before`.
ValueId insert(Graph& graph, size_t before, Op op, std::vector<Arg> args, const Value& like) {
  Value value = like;
  value.name.clear();
  value.origin = Value::Origin::kNode;
  const ValueId id{static_cast<int32_t>(graph.values.size())};
  graph.values.push_back(std::move(value));
  const Node node{
      .op = op, .args = std::move(args), .outs = {id}, .layer = graph.nodes[before].layer};
  graph.nodes.insert(graph.nodes.begin() + static_cast<std::ptrdiff_t>(before), node);
  return id;
}

Value int_value() {
  Value value;
  value.kind = Value::Kind::kInt;
  value.dtype = DType::kI64;
  return value;
}

IntArg shifted(Graph& graph, size_t before, const IntArg& arg, int64_t by) {
  return insert(graph, before, Op::kIntAdd, {arg, IntArg(by)}, int_value());
}

// -- states

// Replaces where(is_start, 0, state), for the last buffer of that name, by the state.
void keep_state(Graph& graph, const std::string& buffer) {
  const Indices nodes = find_nodes(graph, Op::kWhere, [&](const Node& node) {
    const ValueId* state = tensor_arg(node, 2);
    return state && graph[*state].origin == Value::Origin::kBuffer &&
           graph[*state].name.ends_with(buffer);
  });
  if (!nodes.empty()) graph.nodes[nodes.back()].args[1] = graph.nodes[nodes.back()].args[2];
}

void keep_conv_state(Graph& graph) { keep_state(graph, ".conv_state"); }
void keep_recurrent_state(Graph& graph) { keep_state(graph, ".recurrent_state"); }

// Takes the previous inputs of a convolution from one position earlier.
void take_older_inputs(Graph& graph) {
  std::map<int32_t, bool> past;
  for (const Node& node : graph.nodes) {
    if (node.op != Op::kWhere) continue;
    const ValueId* state = tensor_arg(node, 2);
    if (state && graph[*state].name.ends_with(".conv_state")) past[node.outs[0].index] = true;
  }
  const Indices nodes = find_nodes(graph, Op::kSlice, [&](const Node& node) {
    return past.contains(tensor_arg(node, 0)->index);
  });
  if (nodes.empty()) return;
  std::vector<Arg>& args = graph.nodes[nodes.back()].args;
  args[2] = IntArg(0);
  args[3] = IntArg(std::get<IntArg>(args[3]).number - 1);
}

// Writes keys and values of the last attention layer one position too late.
void write_cache_late(Graph& graph) {
  const Indices all = find_nodes(graph, Op::kUpdateCache, any);
  if (all.empty()) return;
  const int32_t layer = graph.nodes[all.back()].layer;
  for (size_t i = graph.nodes.size(); i-- > 0;) {
    if (graph.nodes[i].op != Op::kUpdateCache || graph.nodes[i].layer != layer) continue;
    const IntArg start = std::get<IntArg>(graph.nodes[i].args[2]);
    const IntArg late = shifted(graph, i, start, 1);
    graph.nodes[i + 1].args[2] = late;
  }
}

// -- positions

// Returns the node that gives the positions from which RoPE computes cos or sin `value`, by way of
// first arguments; nullptr for other values.
const Node* positions_of(const Graph& graph, ValueId value) {
  for (size_t i = graph.nodes.size(); i-- > 0;) {
    const Node& node = graph.nodes[i];
    if (node.outs.empty() || node.outs[0] != value) continue;
    if (node.op == Op::kArange) return &node;
    constexpr Op kSteps[] = {Op::kToCopy, Op::kUnsqueeze, Op::kMul,
                             Op::kCos,    Op::kSin,       Op::kMulScalar};
    if (std::ranges::find(kSteps, node.op) == std::end(kSteps)) return nullptr;
    value = *tensor_arg(node, 0);
  }
  return nullptr;
}

// Begins the positions of RoPE one later, for queries and keys.
void shift_rope(Graph& graph) {
  for (size_t i = graph.nodes.size(); i-- > 0;) {
    if (graph.nodes[i].op != Op::kArange) continue;
    const ValueId numbers = graph.nodes[i].outs[0];
    const bool turns = !find_nodes(graph, Op::kToCopy, [&](const Node& node) {
                          return *tensor_arg(node, 0) == numbers;
                        }).empty();
    if (!turns) continue;
    const std::vector<Arg> args = graph.nodes[i].args;
    const IntArg start = shifted(graph, i, std::get<IntArg>(args[0]), 1);
    const IntArg end = shifted(graph, i + 1, std::get<IntArg>(args[1]), 1);
    graph.nodes[i + 2].args[0] = start;
    graph.nodes[i + 2].args[1] = end;
  }
}

// Inserts the nodes that compute `rows`, cos or sin, one position later. `before` counts on.
ValueId later_rows(Graph& graph, size_t& before, ValueId rows) {
  const Node node = *std::ranges::find_if(
      graph.nodes, [&](const Node& made) { return !made.outs.empty() && made.outs[0] == rows; });
  std::vector<Arg> args = node.args;
  if (node.op == Op::kArange) {
    args[0] = shifted(graph, before++, std::get<IntArg>(args[0]), 1);
    args[1] = shifted(graph, before++, std::get<IntArg>(args[1]), 1);
  } else {
    args[0] = later_rows(graph, before, *tensor_arg(node, 0));
  }
  const Value like = graph[rows];
  return insert(graph, before++, node.op, std::move(args), like);
}

// Shifts the RoPE of the queries of the last rotated layer: its first two products with cos and
// sin.
void shift_rope_of_queries(Graph& graph) {
  const auto turns = [&](const Node& node) {
    const ValueId* rows = node.args.size() > 1 ? tensor_arg(node, 1) : nullptr;
    return rows && positions_of(graph, *rows) != nullptr;
  };
  const Indices products = find_nodes(graph, Op::kMul, turns);
  if (products.empty()) return;
  const int32_t layer = graph.nodes[products.back()].layer;
  Indices queries;
  for (size_t i : products) {
    if (graph.nodes[i].layer == layer && queries.size() < 2) queries.push_back(i);
  }
  for (size_t n = queries.size(); n-- > 0;) {
    size_t i = queries[n];
    const ValueId rows = *tensor_arg(graph.nodes[i], 1);
    const ValueId late = later_rows(graph, i, rows);
    graph.nodes[i].args[1] = late;
  }
}

// -- masks and scales

Indices causal_nodes(const Graph& graph) {
  return find_nodes(graph, Op::kSdpa,
                    [](const Node& node) { return std::get<bool>(node.args[6]); });
}

// Additive masks are made of comparisons of the distance with a number. Gemma 3n also compares
// tokens with a number.
bool move_comparison(Graph& graph, Op op, int64_t by) {
  const Indices nodes = find_nodes(graph, op, [&](const Node& node) {
    const ValueId* compared = tensor_arg(node, 0);
    return compared && compared->index != graph.inputs.front().index;
  });
  if (nodes.empty()) return false;
  Arg& bound = graph.nodes[nodes.back()].args[1];
  bound = IntArg(std::get<IntArg>(bound).number + by);
  return true;
}

// Lets every query of the last layer see the next key after its own.
void widen_causal_mask(Graph& graph) {
  const Indices nodes = causal_nodes(graph);
  if (nodes.empty()) {
    move_comparison(graph, Op::kGeScalar, -1);
    return;
  }
  const IntArg start = std::get<IntArg>(graph.nodes[nodes.back()].args[3]);
  const IntArg late = shifted(graph, nodes.back(), start, 1);
  graph.nodes[nodes.back() + 1].args[3] = late;
}

// Hides the own key of every query. Where the operator knows positions only, this affects the
// queries of a first call.
void narrow_causal_mask(Graph& graph) {
  const Indices nodes = causal_nodes(graph);
  if (nodes.empty()) {
    move_comparison(graph, Op::kGeScalar, 1);
    return;
  }
  const size_t at = nodes.back();
  const IntArg before = shifted(graph, at, std::get<IntArg>(graph.nodes[at].args[3]), -1);
  const ValueId start = insert(graph, at + 1, Op::kIntMax, {before, IntArg(0)}, int_value());
  graph.nodes[at + 2].args[3] = IntArg(start);
}

void widen_window(Graph& graph) { move_comparison(graph, Op::kLtScalar, 1); }
void narrow_window(Graph& graph) { move_comparison(graph, Op::kLtScalar, -1); }

// Multiplies 1/sqrt(d) of the last layer by 1.25.
void change_attention_scale(Graph& graph) {
  const Indices nodes = find_nodes(graph, Op::kSdpa, any);
  if (nodes.empty()) return;
  std::vector<Arg>& args = graph.nodes[nodes.back()].args;
  const double width = static_cast<double>(graph[std::get<ValueId>(args[0])].shape.back().base);
  const double* stated = std::get_if<double>(&args[7]);
  args[7] = 1.25 * (stated ? *stated : 1 / std::sqrt(width));
}

void drop_embedding_scale(Graph& graph) {
  // Programs negate rows of sines too.
  const Indices nodes = find_nodes(graph, Op::kMulScalar, [](const Node& node) {
    return node.layer == -1 && std::get<double>(node.args[1]) != -1.0;
  });
  if (!nodes.empty()) graph.nodes[nodes.front()].args[1] = 1.0;
}

// Drops the scale of the queries of linear attention.
void drop_delta_scale(Graph& graph) {
  const Indices rules = find_nodes(graph, Op::kGatedDeltaRule, any);
  if (rules.empty()) return;
  const int32_t layer = graph.nodes[rules.back()].layer;
  const Indices nodes =
      find_nodes(graph, Op::kMulScalar, [&](const Node& node) { return node.layer == layer; });
  if (!nodes.empty()) graph.nodes[nodes.front()].args[1] = 1.0;
}

const std::map<std::string, void (*)(Graph&)>& changes() {
  static const std::map<std::string, void (*)(Graph&)> table = {
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

Result<std::vector<Model>> real_shard(const Model& model, int32_t count) __asm__(
    "__real__ZN5ferry5graph5shardERKNS0_5ModelEi");
Result<std::vector<Model>> wrapped_shard(const Model& model, int32_t count) __asm__(
    "__wrap__ZN5ferry5graph5shardERKNS0_5ModelEi");

Result<std::vector<Model>> wrapped_shard(const Model& model, int32_t count) {
  const char* name = std::getenv("FERRY_WRONG");
  // wrong_codes.cc makes the kinds of that name.
  if (name != nullptr && std::string(name).starts_with("codes_")) return real_shard(model, count);
  const auto change = changes().find(name ? name : "");
  if (change == changes().end()) return fail(ErrorCode::kUsage, "FERRY_WRONG: no such change");
  Model wrong = model;
  for (MethodGraph& method : wrong.methods) {
    change->second(method.graph);
    FERRY_RETURN_IF_ERROR(validate(method.graph));
  }
  return real_shard(wrong, count);
}

}  // namespace mutation
}  // namespace ferry
