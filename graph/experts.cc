// The program of routed experts, and its types.
#include "graph/experts.h"

#include <algorithm>
#include <initializer_list>
#include <map>
#include <utility>

#include "graph/shape_inference.h"

namespace ferry::graph {
namespace {

using Local = ExpertsProgram::Local;
using Ref = ExpertsProgram::Ref;
using RefList = ExpertsProgram::RefList;
using Operand = ExpertsProgram::Operand;
using Call = ExpertsProgram::Call;

constexpr std::monostate kNone;
constexpr uint64_t kAlignment = 16;

// Arguments and outs of the node.
enum Port : size_t { kX, kIds, kScores, kW1, kW3, kW2 };
constexpr size_t kOut = 0;

class Builder {
 public:
  Builder(const Graph& graph, const Node& node) : graph_(graph), node_(node) {}

  ExpertsProgram run() {
    setup();
    body();
    plan();
    return std::move(out_);
  }

 private:
  // -- values
  Ref add(Local local) {
    out_.locals.push_back(std::move(local));
    return {out_.locals.size() - 1};
  }
  Ref port(ValueId id) {
    const Value& value = graph_[id];
    return add(
        {.kind = Local::Kind::kPort, .port = id, .dtype = value.dtype, .shape = value.shape});
  }
  Ref argument(Port which) { return port(std::get<ValueId>(node_.args[which])); }
  Ref scratch(DType dtype, Dims shape, bool dynamic = true) {
    uint64_t bytes = static_cast<uint64_t>(dtype_bytes(dtype));
    for (const Dim& dim : shape) bytes *= static_cast<uint64_t>(graph_.max_of(dim));
    const size_t slot = lives_.size();
    lives_.push_back({.bytes = bytes, .first = -1, .last = -1});
    return add({.kind = Local::Kind::kScratch,
                .dtype = dtype,
                .shape = std::move(shape),
                .dynamic = dynamic,
                .slot = slot});
  }
  Ref number(Local::Kind kind) { return add({.kind = kind}); }
  const Local& local(Ref ref) const { return out_.locals[ref.local]; }

  // -- calls, in the order of execution
  void call(std::string_view op, std::vector<Operand> inputs, std::vector<Ref> outs) {
    for (const Operand& input : inputs) {
      if (const auto* ref = std::get_if<Ref>(&input)) touch(*ref);
      if (const auto* list = std::get_if<RefList>(&input)) {
        for (Ref ref : list->items) touch(ref);
      }
    }
    for (Ref ref : outs) touch(ref);
    ++time_;
    calls_->push_back({op, std::move(inputs), std::move(outs)});
  }
  void touch(Ref ref) {
    if (local(ref).kind != Local::Kind::kScratch) return;
    Lifetime& life = lives_[local(ref).slot];
    if (life.first < 0) life.first = time_;
    life.last = time_;
  }
  Ref tensor(std::string_view op, std::vector<Operand> inputs, DType dtype, Dims shape) {
    const Ref out = scratch(dtype, std::move(shape));
    call(op, std::move(inputs), {out});
    return out;
  }

  // The experts that any token chose, in rising order, and a result of zeros.
  void setup() {
    calls_ = &out_.setup;
    x_ = argument(kX);
    ids_ = argument(kIds);
    scores_ = argument(kScores);
    // The result may not exist yet: types are inferred before it is made.
    result_ = add({.kind = Local::Kind::kPort, .port = node_.outs[kOut], .shape = local(x_).shape});
    tokens_ = local(x_).shape[0];
    hidden_ = local(x_).shape[1];
    slots_ = local(ids_).shape[1];
    const Dim experts = graph_[std::get<ValueId>(node_.args[kW1])].shape[0];
    const Ref all = scratch(DType::kI64, {experts}, /*dynamic=*/false);
    call("aten::arange.out", {experts.base}, {all});
    const Ref column =
        tensor("aten::unsqueeze_copy.out", {ids_, int64_t{-1}}, DType::kI64, {tokens_, slots_, 1});
    const Ref equal =
        tensor("aten::eq.Tensor_out", {column, all}, DType::kBool, {tokens_, slots_, experts});
    const Ref by_slot =
        tensor("aten::any.out", {equal, int64_t{0}, false}, DType::kBool, {slots_, experts});
    const Ref chosen = scratch(DType::kBool, {experts}, /*dynamic=*/false);
    call("aten::any.out", {by_slot, int64_t{0}, false}, {chosen});
    active_ = tensor("aten::nonzero.out", {chosen}, DType::kI64, {experts, 1});
    count_ = number(Local::Kind::kInt);
    call("aten::sym_size.int", {active_, int64_t{0}}, {count_});
    call("aten::full_like.out", {x_, 0.0, kNone}, {result_});
    out_.counter = number(Local::Kind::kInt);
    out_.done = number(Local::Kind::kBool);
  }

  void body() {
    calls_ = &out_.body;
    const Ref row = scratch(DType::kI64, {1}, /*dynamic=*/false);
    call("aten::select_copy.int_out", {active_, int64_t{0}, out_.counter}, {row});
    expert_ = number(Local::Kind::kInt);
    call("aten::_local_scalar_dense", {row}, {expert_});

    // A token chooses an expert at most once.
    const Ref mine =
        tensor("aten::eq.Scalar_out", {ids_, expert_}, DType::kBool, {tokens_, slots_});
    const Ref places = tensor("aten::nonzero.out", {mine}, DType::kI64, {tokens_, 2});
    const Ref token = tensor("aten::select_copy.int_out", {places, int64_t{1}, int64_t{0}},
                             DType::kI64, {tokens_});
    const Ref slot = tensor("aten::select_copy.int_out", {places, int64_t{1}, int64_t{1}},
                            DType::kI64, {tokens_});
    const Ref rows = taken(x_, token);
    const Ref gate = linear(rows, kW1);
    const Ref up = linear(rows, kW3);
    const Ref open = each("aten::sigmoid.out", {gate});
    const Ref silu = each("aten::mul.out", {gate, open});
    const Ref inner = each("aten::mul.out", {silu, up});
    const Ref given = linear(inner, kW2);

    const Ref score =
        tensor("aten::index.Tensor_out", {scores_, RefList{{token, slot}}}, DType::kF32, {tokens_});
    const Ref factor =
        tensor("aten::unsqueeze_copy.out", {score, int64_t{-1}}, DType::kF32, {tokens_, 1});
    const Ref weighted = each("aten::mul.out", {given, factor});
    const Ref before = taken(result_, token);
    const Ref after =
        tensor("aten::add.out", {before, weighted, int64_t{1}}, DType::kF32, {tokens_, hidden_});
    call("aten::index_put_", {result_, RefList{{token}}, after, false}, {});
    call("executorch_prim::add.Scalar", {out_.counter, int64_t{1}}, {out_.counter});
    call("executorch_prim::ge.Scalar", {out_.counter, count_}, {out_.done});
    touch(active_);  // read again by the next turn
  }

  // An elementwise operator, of the shape of its first operand.
  Ref each(std::string_view op, std::initializer_list<Ref> operands) {
    return tensor(op, {operands.begin(), operands.end()}, DType::kF32,
                  local(*operands.begin()).shape);
  }
  Ref taken(Ref from, Ref rows) {
    return tensor("aten::index_select.out", {from, int64_t{0}, rows}, DType::kF32,
                  {tokens_, hidden_});
  }

  // x through this expert's matrix of `weights`, in the dtype of that.
  Ref linear(Ref x, Port which) {
    const Ref stacked = argument(which);
    const DType dtype = local(stacked).dtype;
    const Dims shape = local(stacked).shape;
    const Ref matrix = scratch(dtype, {shape[1], shape[2]}, /*dynamic=*/false);
    call("aten::select_copy.int_out", {stacked, int64_t{0}, expert_}, {matrix});
    const Ref y =
        tensor("aten::linear.out", {cast(x, dtype), matrix, kNone}, dtype, {tokens_, shape[1]});
    return cast(y, DType::kF32);
  }
  Ref cast(Ref x, DType dtype) {
    if (local(x).dtype == dtype) return x;
    const auto known = casts_.find({x.local, dtype});
    if (known != casts_.end()) return known->second;
    const Ref out = tensor("aten::_to_copy.out", {x, false, kNone}, dtype, local(x).shape);
    casts_[{x.local, dtype}] = out;
    return out;
  }

  void plan() { out_.scratch = plan_memory(lives_, kAlignment); }

  const Graph& graph_;
  const Node& node_;
  ExpertsProgram out_;
  std::vector<Call>* calls_ = nullptr;
  std::vector<Lifetime> lives_;  // of the scratch values
  int32_t time_ = 0;
  Ref x_, ids_, scores_, result_, active_, count_, expert_;
  Dim tokens_, hidden_, slots_;
  std::map<std::pair<size_t, DType>, Ref> casts_;
};

}  // namespace

ExpertsProgram experts_program(const Graph& graph, const Node& node) {
  return Builder(graph, node).run();
}

const pte::OpSchema& experts_schema() {
  static const pte::OpSchema schema = [] {
    pte::OpSchema made;
    made.name = "experts";
    made.result = pte::ResultStyle::kRepeatOut;
    for (const char* name : {"x", "ids", "scores", "w1", "w3", "w2"}) {
      made.args.push_back({name, pte::ArgKind::kTensor});
    }
    for (const char* name : {"out", "scratch"}) {
      made.args.push_back({name, pte::ArgKind::kTensor, false, /*out=*/true});
    }
    return made;
  }();
  return schema;
}

Result<Types> infer_experts(const RuleInput& in) {
  const Value& x = in.tensor(kX);
  const Value& ids = in.tensor(kIds);
  const Dims& w1 = in.tensor(kW1).shape;
  if (x.shape.size() != 2 || ids.shape.size() != 2 || w1.size() != 3) {
    return misfit("too many or too few dimensions");
  }
  if (x.dtype != DType::kF32 || ids.dtype != DType::kI64 ||
      in.tensor(kScores).dtype != DType::kF32) {
    return misfit("wants f32, i64 and f32");
  }
  if (ids.shape[0] != x.shape[0] || in.tensor(kScores).shape != ids.shape) {
    return misfit("not one choice for each token");
  }
  for (size_t i : {kW1, kW3, kW2}) {
    if (!is_castable(in.tensor(i).dtype)) return misfit("weights are no floats");
  }
  const bool fit = w1[0].is_static() && ids.shape[1].is_static() && w1[2] == x.shape[1] &&
                   in.tensor(kW3).shape == w1 && in.tensor(kW2).shape == Dims{w1[0], w1[2], w1[1]};
  if (!fit || ids.shape[1].base > w1[0].base) return misfit("the experts' shapes do not match");
  const ExpertsProgram program = experts_program(in.graph, in.node);
  const auto bytes = static_cast<int64_t>(program.scratch.arena_bytes);
  return Types{{Value::Kind::kTensor, DType::kF32, x.shape},
               {Value::Kind::kTensor, DType::kU8, {bytes}}};
}

}  // namespace ferry::graph
