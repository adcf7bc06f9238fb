// The program of a node of routed experts, and the inference of its types.
#include "graph/experts.h"

#include <algorithm>
#include <initializer_list>
#include <map>
#include <optional>
#include <utility>

#include "graph/dims.h"
#include "graph/shape_inference.h"

namespace ferry::graph {
namespace {

using Local = ExpertsProgram::Local;
using Ref = ExpertsProgram::Ref;
using RefList = ExpertsProgram::RefList;
using Operand = ExpertsProgram::Operand;
using Call = ExpertsProgram::Call;

constexpr std::monostate kNoAttributes;
constexpr uint64_t kRowAlignment = 16;

using Port = ExpertsArgs::Arg;
using enum ExpertsArgs::Arg;
constexpr size_t kScalesOf = kS1 - kW1;    // distance from a matrix to its scales
constexpr size_t kBiasOf = kB1 - kW1;      // distance from a matrix to its biases
constexpr size_t kEncodingOf = kE1 - kW1;  // distance from a matrix to its encoding
constexpr size_t kOut = 0;                 // among the outs of the node

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

  // -- calls, in order of execution
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

  // Finds the experts that any token chose, in ascending order, and makes a result of zeros.
  void setup() {
    calls_ = &out_.setup;
    x_ = argument(kX);
    ids_ = argument(kIds);
    scores_ = argument(kScores);
    // The result may not exist yet, because types are inferred before it is made.
    result_ = add({.kind = Local::Kind::kPort, .port = node_.outs[kOut], .shape = local(x_).shape});
    tokens_ = local(x_).shape[0];
    hidden_ = local(x_).shape[1];
    slots_ = local(ids_).shape[1];
    const Dims& down = graph_[std::get<ValueId>(node_.args[kW2])].shape;
    const Dim experts = down.size() == 3 ? down[0] : Dim(down[0].base / hidden_.base);
    // Rows of w2 may be blocks.
    const Dims& gate = graph_[std::get<ValueId>(node_.args[kW1])].shape;
    inner_ = gate.size() == 3 ? gate[1] : down.back();
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
    call("aten::full_like.out", {x_, 0.0, kNoAttributes}, {result_});
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
    const Ref gate = biased(linear(rows, kW1), kW1);
    const Ref inner = has_gate() ? gated(gate, biased(linear(rows, kW3), kW3)) : squared(gate);
    const Ref given = biased(linear(inner, kW2), kW2);

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
    touch(active_);  // read again by the next iteration
  }

  bool has_biases() const { return std::holds_alternative<ValueId>(node_.args[kB1]); }
  bool has_gate() const { return std::holds_alternative<ValueId>(node_.args[kW3]); }
  Ref squared(Ref x) {
    const Ref positive = each("aten::relu.out", {x});
    return each("aten::mul.out", {positive, positive});
  }
  Ref gated(Ref gate, Ref up) {
    if (has_biases()) return clamped(gate, up);
    return each("aten::mul.out", {activated(gate), up});
  }
  Ref activated(Ref gate) {
    const std::string& name = std::get<std::string>(node_.args[kActivation]);
    if (name == "relu") return each("aten::relu.out", {gate});
    if (name != "silu") {
      const std::string form = name == "gelu" ? "none" : "tanh";
      return tensor("aten::gelu.out", {gate, form}, DType::kF32, local(gate).shape);
    }
    const Ref open = each("aten::sigmoid.out", {gate});
    return each("aten::mul.out", {gate, open});
  }
  Ref clamped(Ref gate, Ref up) {
    const Dims shape = local(gate).shape;
    const double steepness = std::get<double>(node_.args[kSteepness]);
    const double limit = std::get<double>(node_.args[kLimit]);
    const Ref low = tensor("aten::clamp.out", {gate, kNoAttributes, limit}, DType::kF32, shape);
    const Ref steep = tensor("aten::mul.Scalar_out", {low, steepness}, DType::kF32, shape);
    const Ref open = each("aten::sigmoid.out", {steep});
    const Ref glu = each("aten::mul.out", {low, open});
    const Ref held = tensor("aten::clamp.out", {up, -limit, limit}, DType::kF32, shape);
    const Ref raised =
        tensor("aten::add.Scalar_out", {held, int64_t{1}, int64_t{1}}, DType::kF32, shape);
    return each("aten::mul.out", {glu, raised});
  }
  // Returns y plus the bias of this expert's matrix `weights`.
  Ref biased(Ref y, Port weights) {
    if (!has_biases()) return y;
    const Ref all = argument(static_cast<Port>(weights + kBiasOf));
    const Ref bias = scratch(DType::kF32, {local(all).shape[1]}, /*dynamic=*/false);
    call("aten::select_copy.int_out", {all, int64_t{0}, expert_}, {bias});
    return tensor("aten::add.out", {y, bias, int64_t{1}}, DType::kF32, local(y).shape);
  }

  // Calls an elementwise operator. The result has the shape of the first operand.
  Ref each(std::string_view op, std::initializer_list<Ref> operands) {
    return tensor(op, {operands.begin(), operands.end()}, DType::kF32,
                  local(*operands.begin()).shape);
  }
  Ref taken(Ref from, Ref rows) {
    return tensor("aten::index_select.out", {from, int64_t{0}, rows}, DType::kF32,
                  {tokens_, hidden_});
  }

  // Multiplies x with this expert's matrix `which`, in the dtype of the matrix.
  Ref linear(Ref x, Port which) {
    const Dim rows = which == kW2 ? hidden_ : inner_;
    if (const auto& encoding = std::get<std::string>(node_.args[which + kEncodingOf]);
        !encoding.empty()) {
      return tensor("ferry::block_linear.out", {x, selected(argument(which)), encoding},
                    DType::kF32, {tokens_, rows});
    }
    const auto* scales = std::get_if<ValueId>(&node_.args[which + kScalesOf]);
    const std::optional<Ref> scale = scales ? std::optional(port(*scales)) : std::nullopt;
    const Ref all = argument(which);
    const Ref matrix = scale ? decoded(all, *scale, rows) : selected(all);
    const DType dtype = local(matrix).dtype;
    const Ref y =
        tensor("aten::linear.out", {cast(x, dtype), matrix, kNoAttributes}, dtype, {tokens_, rows});
    return cast(y, DType::kF32);
  }
  Ref selected(Ref stacked) {
    const Dims shape = local(stacked).shape;
    const Ref matrix = scratch(local(stacked).dtype, {shape[1], shape[2]}, /*dynamic=*/false);
    call("aten::select_copy.int_out", {stacked, int64_t{0}, expert_}, {matrix});
    return matrix;
  }
  // Returns the matrix of this expert in f32, by the indices of its rows.
  Ref decoded(Ref codes, Ref scales, const Dim& rows) {
    const Ref numbers = scratch(DType::kI64, {rows}, /*dynamic=*/false);
    const Ref first = number(Local::Kind::kInt), end = number(Local::Kind::kInt);
    call("executorch_prim::mul.Scalar", {expert_, rows.base}, {first});
    call("executorch_prim::add.Scalar", {first, rows.base}, {end});
    call("aten::arange.start_out", {first, end, int64_t{1}}, {numbers});
    const bool nibbles = local(codes).dtype == DType::kI4;
    const Ref matrix = scratch(DType::kF32, {rows, local(codes).shape.back()}, /*dynamic=*/false);
    call(nibbles ? "quantized_decomposed::embedding_4bit.dtype_out"
                 : "quantized_decomposed::embedding_byte.dtype_out",
         {codes, scales, kNoAttributes, int64_t{nibbles ? -8 : -128}, int64_t{nibbles ? 7 : 127},
          numbers, int64_t{dtype_info(DType::kF32).executorch}},
         {matrix});
    return matrix;
  }
  Ref cast(Ref x, DType dtype) {
    if (local(x).dtype == dtype) return x;
    const auto known = casts_.find({x.local, dtype});
    if (known != casts_.end()) return known->second;
    const Ref out = tensor("aten::_to_copy.out", {x, false, kNoAttributes}, dtype, local(x).shape);
    casts_[{x.local, dtype}] = out;
    return out;
  }

  void plan() { out_.scratch = plan_memory(lives_, kRowAlignment); }

  const Graph& graph_;
  const Node& node_;
  ExpertsProgram out_;
  std::vector<Call>* calls_ = nullptr;
  std::vector<Lifetime> lives_;  // one per scratch value
  int32_t time_ = 0;
  Ref x_, ids_, scores_, result_, active_, count_, expert_;
  Dim tokens_, hidden_, slots_, inner_;
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
      const bool optional = name == std::string_view("w3");
      made.args.push_back({name, pte::ArgKind::kTensor, optional});
    }
    for (const char* name : {"s1", "s3", "s2", "b1", "b3", "b2"}) {
      made.args.push_back({name, pte::ArgKind::kTensor, /*optional=*/true});
    }
    for (const char* name : {"steepness", "limit"}) {
      made.args.push_back({name, pte::ArgKind::kFloat});
    }
    for (const char* name : {"e1", "e3", "e2", "activation"}) {
      made.args.push_back({name, pte::ArgKind::kString});
    }
    for (const char* name : {"out", "scratch"}) {
      made.args.push_back({name, pte::ArgKind::kTensor, false, /*out=*/true});
    }
    return made;
  }();
  return schema;
}

namespace {

Dims without_axes(Dims shape) {
  for (Dim& dim : shape) dim.axis = Axis::kNone;
  return shape;
}

// `wanted` is [experts,rows,columns].
Status check_matrix(const RuleInput& in, size_t arg, const Dims& wanted) {
  const Value& matrix = in.tensor(arg);
  if (!std::get<std::string>(in.node.args[arg + kEncodingOf]).empty()) {
    const Dims rows = without_axes(matrix.shape);
    const bool fit = matrix.dtype == DType::kU8 && rows.size() == 3 && rows[0] == wanted[0] &&
                     rows[1] == wanted[1];
    return fit ? Status{} : misfit("the experts' blocks do not match");
  }
  if (!in.given(arg + kScalesOf)) {
    if (!is_castable(matrix.dtype)) return misfit("weights are no floats");
    if (without_axes(matrix.shape) != wanted) return misfit("the experts' shapes do not match");
    return {};
  }
  const Dims table = {wanted[0].base * wanted[1].base, wanted[2]};
  const Value& scales = in.tensor(arg + kScalesOf);
  if (matrix.dtype != DType::kI4 && matrix.dtype != DType::kI8) return misfit("no codes");
  if (without_axes(matrix.shape) != table) return misfit("the experts' shapes do not match");
  const bool fit =
      scales.dtype == DType::kF32 && !scales.shape.empty() && scales.shape[0] == table[0] &&
      is_static(scales.shape) &&
      (scales.shape.size() == 1 || (scales.shape.size() == 2 && scales.shape[1].base > 0 &&
                                    table[1].base % scales.shape[1].base == 0));
  return fit ? Status{} : misfit("the experts' scales do not match");
}

// Either all biases are present or none.
Status check_biases(const RuleInput& in, int64_t experts, int64_t inner, int64_t hidden) {
  for (const auto& [arg, width] : {std::pair{kB1, inner}, {kB3, inner}, {kB2, hidden}}) {
    if (in.given(arg) != in.given(kB1)) return misfit("some biases of experts are missing");
    if (!in.given(arg)) continue;
    const Value& bias = in.tensor(arg);
    if (bias.dtype != DType::kF32 || without_axes(bias.shape) != Dims{experts, width}) {
      return misfit("the experts' biases do not match");
    }
  }
  return {};
}

}  // namespace

Result<Types> infer_experts(const RuleInput& in) {
  const Value& x = in.tensor(kX);
  const Value& ids = in.tensor(kIds);
  const Dims& down = in.tensor(kW2).shape;
  if (x.shape.size() != 2 || ids.shape.size() != 2 || down.empty() || !is_static(down) ||
      !x.shape[1].is_static()) {
    return misfit("too many or too few dimensions");
  }
  constexpr std::string_view kActivations[] = {"silu", "gelu", "gelu_tanh", "relu"};
  if (std::ranges::count(kActivations, std::get<std::string>(in.node.args[kActivation])) == 0) {
    return misfit("an unknown activation");
  }
  if (x.dtype != DType::kF32 || ids.dtype != DType::kI64 ||
      in.tensor(kScores).dtype != DType::kF32) {
    return misfit("wants f32, i64 and f32");
  }
  if (ids.shape[0] != x.shape[0] || in.tensor(kScores).shape != ids.shape) {
    return misfit("not one choice for each token");
  }
  const int64_t hidden = x.shape[1].base;
  const int64_t experts = down.size() == 3 ? down[0].base : down[0].base / hidden;
  const Dims& gate = in.tensor(kW1).shape;
  const int64_t inner = gate.size() == 3 ? gate[1].base : down.back().base;
  FERRY_RETURN_IF_ERROR(check_matrix(in, kW1, {experts, inner, hidden}));
  if (in.given(kW3)) FERRY_RETURN_IF_ERROR(check_matrix(in, kW3, {experts, inner, hidden}));
  FERRY_RETURN_IF_ERROR(check_matrix(in, kW2, {experts, hidden, inner}));
  FERRY_RETURN_IF_ERROR(check_biases(in, experts, inner, hidden));
  if (!ids.shape[1].is_static() || ids.shape[1].base > experts) {
    return misfit("more choices than experts");
  }
  const ExpertsProgram program = experts_program(in.graph, in.node);
  const auto bytes = static_cast<int64_t>(program.scratch.arena_bytes);
  return Types{{Value::Kind::kTensor, DType::kF32, x.shape},
               {Value::Kind::kTensor, DType::kU8, {bytes}}};
}

}  // namespace ferry::graph
