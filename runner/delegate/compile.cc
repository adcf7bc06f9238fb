// Compiles a graph: checks the graph, binds its values to tensors, and makes a step for every node.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>
#include <unordered_map>

#include "core/checked.h"
#include "core/dim_order.h"
#include "runner/delegate/narrow_values.h"
#include "runner/delegate/node_rules.h"
#include "runner/delegate/plan.h"

namespace ferry::runner {
namespace {

using kernels::Tensor;
using xnnpack::Datatype;
using xnnpack::Node;
using xnnpack::NodeKind;

constexpr uint32_t kMaxArguments = 4096;  // the limit of the official runtime

Failure not_implemented(const std::string& what) {
  return fail(ErrorCode::kUnsupported, what + " is not supported");
}

class Compiler {
 public:
  Compiler(const DelegateSource& source, Delegate::Plan& plan, MemoryBudget& budget)
      : source_(source), plan_(plan), budget_(budget) {}

  Status run() {
    const xnnpack::Graph& graph = source_.graph;
    if (graph.num_externals > kMaxArguments) {
      return bad_input(fmt::format("more than {} arguments", kMaxArguments));
    }
    if (source_.args.size() != graph.num_externals) {
      return bad_input(fmt::format("{} arguments, but the graph has {}", source_.args.size(),
                                   graph.num_externals));
    }
    plan_.nodes = graph.nodes;
    for (size_t i = 0; i < graph.values.size(); ++i) {
      const xnnpack::Value& value = graph.values[i];
      Status status = add_value(value);
      if (!status) return prefixed(fmt::format("graph value {}", value.id), status);
    }
    for (size_t i = 0; i < graph.nodes.size(); ++i) {
      Status status = add_node(i);
      if (!status) return Failure(plan_.at_node(i, std::move(status).error()));
    }
    FERRY_RETURN_IF_ERROR(check_outputs());
    for (const Edge& edge : results_) add_edge_step(edge, narrow_result);
    find_last_uses();
    FERRY_RETURN_IF_ERROR(plan_first());
    plan_.reordered.replace_by_actual(plan_.inputs, true);
    plan_.reordered.replace_by_actual(plan_.outputs, false);
    return {};
  }

 private:
  static Failure prefixed(const std::string& place, Status& status) {
    Error error = std::move(status).error();
    error.message = fmt::format("{}: {}", place, error.message);
    return Failure(std::move(error));
  }

  // -- values

  Status add_value(const xnnpack::Value& value) {
    if (!index_.emplace(value.id, plan_.values.size()).second) return bad_input("is there twice");
    if (value.dims.size() > kMaxNodeRank) {
      return bad_input(fmt::format("more than {} dimensions", kMaxNodeRank));
    }
    plan_.values.push_back({.id = value.id});
    graph_values_.push_back(&value);
    made_.push_back(false);
    if (value.external != xnnpack::kNone) return add_external(value);
    if (value.is_input || value.is_output) return bad_input("an argument without a position");
    if (value.constant != 0) return add_constant(value);
    PlannedValue& planned = plan_.values.back();
    planned.is_scratch = is_kept(value.datatype);
    planned.tensor = scratch_tensor();
    return {};
  }

  Tensor* scratch_tensor() {
    Tensor* tensor = own_tensor();
    tensor->dynamic = tensor->writable = true;
    tensor->capacity = 0;
    return tensor;
  }

  Tensor* own_tensor() {
    Tensor& tensor = plan_.own.emplace_back();
    tensor.id = static_cast<int32_t>(plan_.values.back().id);
    return &tensor;
  }

  // A single number may have any rank, because exporters state [1] for a scalar.
  static bool same_rank(const Tensor& tensor, const xnnpack::Value& value) {
    const bool one = !tensor.dynamic && tensor.numel == 1 &&
                     std::ranges::count(value.dims, 1U) == std::ssize(value.dims);
    return one || static_cast<size_t>(tensor.rank()) == value.dims.size();
  }

  Result<Tensor*> argument(size_t place) {
    Tensor* tensor = source_.args[place];
    if (is_row_major(source_.orders[place])) return tensor;
    return plan_.reordered.stand_in(*tensor, source_.orders[place], budget_);
  }

  Status add_external(const xnnpack::Value& value) {
    if (value.external >= source_.args.size() || value.is_input == value.is_output ||
        value.constant != 0) {
      return bad_input(fmt::format("argument {} is no input or output", value.external));
    }
    if (!is_kept(value.datatype)) {
      return not_implemented(fmt::format("an argument in {}", datatype_name(value.datatype)));
    }
    const bool narrow = value.datatype != Datatype::kF32;
    Tensor* tensor = FERRY_TRY(argument(value.external));
    if (tensor->dtype != argument_dtype(value.datatype) || tensor->widened) {
      return bad_input(fmt::format("argument {} must be {}, not {}", value.external,
                                   dtype_name(argument_dtype(value.datatype)),
                                   tensor->widened ? "half" : dtype_name(tensor->dtype)));
    }
    if (!same_rank(*tensor, value)) {
      return bad_input(fmt::format("argument {} has {} dimensions, expected {}", value.external,
                                   tensor->rank(), value.dims.size()));
    }
    const size_t kept = plan_.values.size() - 1;
    if (narrow) {
      plan_.values.back().tensor = scratch_tensor();
      plan_.values.back().is_scratch = true;
      plan_.values.push_back({.id = value.id});
      graph_values_.push_back(&value);
      made_.push_back(true);
    }
    plan_.values.back().tensor = tensor;
    std::vector<Tensor*>& list = value.is_input ? plan_.inputs : plan_.outputs;
    if (std::ranges::count(list, tensor) == 0) {
      list.push_back(tensor);
    } else if (value.is_output) {
      return bad_input(fmt::format("argument {} is an output twice", value.external));
    }
    if (value.is_output && tensor != source_.args[value.external]) {
      plan_.reordered_outputs.push_back({plan_.values.size() - 1, kept});
    }
    if (value.is_input) {
      plan_.input_values.push_back(plan_.values.size() - 1);
      made_[kept] = true;
    }
    if (narrow && value.is_input) add_edge_step({kept + 1, kept}, widen_argument);
    if (narrow && value.is_output) results_.push_back({kept, kept + 1});
    return {};
  }

  // A step between an argument in another type and the value in f32 that stands for it.
  struct Edge {
    size_t from, to;  // indices into Plan::values
  };
  void add_edge_step(const Edge& edge, kernels::KernelFn convert) {
    plan_.nodes.push_back({.kind = NodeKind::kConvert});
    const size_t index = plan_.nodes.size() - 1;
    PlanStep step{.node = index, .reads = {edge.from}, .writes = {edge.to}, .run = convert};
    KernelArgs args(plan_.made, step.args);
    args.tensor(plan_.values[edge.from].tensor);
    add_encoding(*graph_values_[edge.from], args);
    args.tensor(plan_.values[edge.to].tensor);
    plan_.rules.push_back({index, {edge.from}, edge.to});
    plan_.steps.push_back(std::move(step));
  }

  // Constants in other types than f32 get a tensor when a node reads their values.
  Status add_constant(const xnnpack::Value& value) {
    made_.back() = true;
    if (value.constant >= source_.constants.size()) return bad_input("has no constant");
    PlannedValue& planned = plan_.values.back();
    for (uint32_t size : value.dims) planned.shape.push_back(size);
    if (value.datatype != Datatype::kF32) return {};
    const std::optional<int64_t> count = checked_numel(planned.shape.span());
    const std::span<const std::byte> bytes = source_.constants[value.constant];
    if (!count || static_cast<uint64_t>(*count) > bytes.size() / sizeof(float)) {
      return bad_input(fmt::format("{} bytes of data are too few", bytes.size()));
    }
    Tensor& tensor = *(planned.tensor = own_tensor());
    tensor.sizes = planned.shape;
    tensor.numel = *count;
    tensor.data = const_cast<std::byte*>(bytes.data());  // read only
    return {};
  }

  Status widen(size_t value) {
    PlannedValue& planned = plan_.values[value];
    if (planned.tensor != nullptr) return {};
    const std::vector<float>& values = plan_.widened.emplace_back(
        FERRY_TRY(widened_constant(*graph_values_[value], source_.constants)));
    Tensor& tensor = plan_.own.emplace_back();
    tensor.id = static_cast<int32_t>(planned.id);
    tensor.sizes = planned.shape;
    tensor.numel = std::ssize(values);
    tensor.data = const_cast<std::byte*>(std::as_bytes(std::span(values)).data());  // read only
    planned.tensor = &tensor;
    return {};
  }

  // Constants may lie at any address. Only matrices of FullyConnected may be read unaligned.
  void align(size_t value) {
    Tensor& tensor = *plan_.values[value].tensor;
    if (graph_values_[value]->constant == 0 || tensor.numel == 0) return;
    if (reinterpret_cast<uintptr_t>(tensor.data) % alignof(float) == 0) return;
    const auto bytes = static_cast<size_t>(tensor.bytes());
    tensor.data = const_cast<std::byte*>(source_.aligned_copy({tensor.data, bytes}).data());
  }

  // -- nodes

  Result<size_t> value_of(uint32_t id) const {
    const auto found = index_.find(id);
    if (found != index_.end()) return found->second;
    return bad_input(fmt::format("there is no graph value {}", id));
  }

  // Returns the index of an input, which must be made already, in `datatype`.
  Result<size_t> input_of(uint32_t id, Datatype datatype) {
    const size_t value = FERRY_TRY(value_of(id));
    if (!made_[value])
      return bad_input(fmt::format("graph value {} is used before it is made", id));
    FERRY_RETURN_IF_ERROR(check_type(value, datatype));
    if (graph_values_[value]->constant != 0) FERRY_RETURN_IF_ERROR(widen(value));
    return value;
  }

  Result<size_t> output_of(const Node& node, Datatype datatype) {
    if (node.outputs.size() != 1) return bad_input(fmt::format("{} outputs", node.outputs.size()));
    const size_t value = FERRY_TRY(value_of(node.outputs[0]));
    if (made_[value]) {
      return bad_input(fmt::format("graph value {} cannot be made here", node.outputs[0]));
    }
    FERRY_RETURN_IF_ERROR(check_type(value, datatype));
    made_[value] = true;
    return value;
  }

  Status check_type(size_t value, Datatype datatype) const {
    const xnnpack::Value& is = *graph_values_[value];
    if (is.datatype == datatype) return {};
    if (datatype == Datatype::kF32 && (is_kept(is.datatype) || is.constant != 0)) return {};
    return not_implemented(fmt::format("graph value {} in {}", is.id, datatype_name(is.datatype)));
  }

  Status add_node(size_t index) {
    const Node& node = plan_.nodes[index];
    const bool pools = node.kind == NodeKind::kMaxPooling2d ||
                       node.kind == NodeKind::kAvgPooling2d ||
                       node.kind == NodeKind::kGlobalAvgPooling2d;
    const uint32_t known = pools                                            ? xnnpack::kKeepDims
                           : node.kind == NodeKind::kStaticResizeBilinear2d ? xnnpack::kAlignCorners
                                                                            : 0;
    if ((node.flags & ~known) != 0) return not_implemented(fmt::format("flags {:#x}", node.flags));
    if (node.kind == NodeKind::kFullyConnected) return add_linear(index);
    if (node.kind == NodeKind::kConvert) return add_convert(index);
    const NodeRule* rule = find_node_rule(node.kind);
    if (rule == nullptr) return fail(ErrorCode::kUnsupported, "is not supported");
    return add_kernel(index, *rule, std::span(node.inputs));
  }

  Status add_kernel(size_t index, const NodeRule& rule, std::span<const uint32_t> ids) {
    const Node& node = plan_.nodes[index];
    while (!ids.empty() && ids.back() == xnnpack::kNone) ids = ids.first(ids.size() - 1);
    if (ids.size() > rule.inputs || ids.size() + rule.optional < rule.inputs) {
      return bad_input(fmt::format("{} inputs, expected {}", ids.size(), rule.inputs));
    }
    if (rule.check != nullptr) FERRY_RETURN_IF_ERROR(rule.check(node));
    PlanStep step{.node = index, .run = rule.run, .variant = rule.variant};
    for (uint32_t id : ids) {
      step.reads.push_back(FERRY_TRY(input_of(id, Datatype::kF32)));
      align(step.reads.back());
    }
    const size_t out = FERRY_TRY(output_of(node, Datatype::kF32));
    step.writes = {out};
    std::vector<Tensor*> inputs;
    for (size_t read : step.reads) inputs.push_back(plan_.values[read].tensor);
    KernelArgs args(plan_.made, step.args);
    add_node_args(rule, node, inputs, plan_.values[out].tensor, args);
    plan_.rules.push_back({index, step.reads, out});
    plan_.steps.push_back(std::move(step));
    FERRY_RETURN_IF_ERROR(add_clamp(index, out));
    if (!moves_values(node.kind)) add_rounding(index, out);
    return {};
  }

  // Rounds the values of a node to those that their type has.
  void add_rounding(size_t index, size_t out) {
    const xnnpack::Value& value = *graph_values_[out];
    if (value.datatype == Datatype::kF32) return;
    PlanStep step{.node = index,
                  .reads = {out},
                  .writes = {},
                  .run = round_values,
                  .variant = static_cast<int>(argument_dtype(value.datatype))};
    KernelArgs args(plan_.made, step.args);
    args.tensor(plan_.values[out].tensor);
    add_encoding(value, args);
    args.tensor(plan_.values[out].tensor);
    plan_.steps.push_back(std::move(step));
  }

  // Adds the clamp that some kinds of nodes contain, as a separate step.
  Status add_clamp(size_t index, size_t out) {
    const std::optional<xnnpack::MinMax> range = FERRY_TRY(range_of(index));
    if (!range) return {};
    const NodeRule& rule = *find_node_rule(NodeKind::kClamp);
    PlanStep step{.node = index, .reads = {out}, .writes = {}, .run = rule.run};
    Tensor* tensor = plan_.values[out].tensor;
    KernelArgs args(plan_.made, step.args);
    add_node_args(rule, plan_.nodes[index], std::span(&tensor, 1), tensor, args);
    plan_.steps.push_back(std::move(step));
    return {};
  }

  Result<std::optional<xnnpack::MinMax>> range_of(size_t index) const {
    const Node& node = plan_.nodes[index];
    if (!clamps_result(node.kind) || !node.output_range) return std::nullopt;
    FERRY_RETURN_IF_ERROR(check_range(*node.output_range));
    return limits(*node.output_range) ? node.output_range : std::nullopt;
  }

  // A value that is quantised at run time is represented by the value that it is made from.
  Status add_convert(size_t index) {
    const Node& node = plan_.nodes[index];
    if (node.inputs.size() != 1 || node.outputs.size() != 1) {
      return bad_input("must have one input and one output");
    }
    const size_t input = FERRY_TRY(input_of(node.inputs[0], Datatype::kF32));
    const size_t out = FERRY_TRY(value_of(node.outputs[0]));
    if (is_kept(graph_values_[out]->datatype)) {
      return add_kernel(index, *find_node_rule(NodeKind::kCopy), std::span(node.inputs));
    }
    FERRY_RETURN_IF_ERROR(output_of(node, Datatype::kQDInt8));
    const auto* token = std::get_if<xnnpack::PerToken>(&graph_values_[out]->quantization);
    if (token == nullptr || token->num_nonbatch_dims != 1) {
      return not_implemented(
          fmt::format("graph value {} with rows of other than one dimension", node.outputs[0]));
    }
    quantised_from_.emplace(out, input);
    return {};
  }

  // -- FullyConnected

  Status add_linear(size_t index) {
    const Node& node = plan_.nodes[index];
    if (node.inputs.size() < 2 || node.inputs.size() > 3) {
      return bad_input(fmt::format("{} inputs", node.inputs.size()));
    }
    const size_t given = FERRY_TRY(value_of(node.inputs[0]));
    const auto quantised = quantised_from_.find(given);
    const bool dynamic = quantised != quantised_from_.end();
    if (!dynamic) FERRY_RETURN_IF_ERROR(input_of(node.inputs[0], Datatype::kF32));
    const size_t input = dynamic ? quantised->second : given;
    align(input);
    const size_t filter = FERRY_TRY(value_of(node.inputs[1]));
    LinearStep linear = FERRY_TRY(make_linear(dynamic, graph_values_[given]->datatype, filter));
    if (node.inputs.size() == 3 && node.inputs[2] != xnnpack::kNone) {
      const int64_t rows = plan_.values[filter].shape[0];
      linear.tasks[0].bias = FERRY_TRY(bias_of(node.inputs[2], rows));
    }
    const size_t out = FERRY_TRY(output_of(node, Datatype::kF32));
    linear.products = {{index, out, FERRY_TRY(range_of(index))}};
    plan_.rules.push_back({index, {input, filter}, out});
    append(input, out, std::move(linear), index);
    add_rounding(index, out);
    return {};
  }

  // Returns whether a filter is used as the f32 that it stands for: those of products in f16, bf16
  // and of codes whose scale is in the graph.
  static bool is_widened(Datatype rows, Datatype filter) {
    return rows == Datatype::kQInt8 || filter == Datatype::kF16 || filter == Datatype::kBF16;
  }

  Result<LinearStep> make_linear(bool dynamic, Datatype rows, size_t index) {
    const xnnpack::Value& filter = *graph_values_[index];
    LinearStep linear;
    linear.tasks.resize(1);
    if (!dynamic && filter.constant != 0 && filter.dims.size() == 2 &&
        is_widened(rows, filter.datatype)) {
      FERRY_RETURN_IF_ERROR(widen(index));
      linear.columns = plan_.values[index].shape[1];
      linear.matrix = plan_.values[index].tensor->data;
      return linear;
    }
    const Filter found = FERRY_TRY(read_filter(filter, source_.constants));
    linear.columns = found.columns;
    if (found.f32 != nullptr) {
      if (dynamic) return not_implemented("a filter in f32 for an input in qdint8");
      linear.matrix = found.f32;
      return linear;
    }
    if (!dynamic && filter.datatype == Datatype::kQBInt4) {
      return not_implemented("a filter in qbint4 for an input in f32");
    }
    const bool quantises = dynamic && !source_.widen;
    linear.kind = quantises ? LinearStep::Kind::kDynamic : LinearStep::Kind::kWeightOnly;
    linear.rounds_rows = dynamic && source_.widen && source_.round_rows;
    linear.tasks[0].matrix = FERRY_TRY(plan_.memory.packed(found.coded, budget_));
    return linear;
  }

  Result<const float*> bias_of(uint32_t id, int64_t rows) {
    const size_t bias = FERRY_TRY(input_of(id, Datatype::kF32));
    if (graph_values_[bias]->constant == 0) return not_implemented("a bias that is no constant");
    const Tensor& tensor = *plan_.values[bias].tensor;
    if (tensor.numel != rows) {
      return bad_input(fmt::format("a bias of {} values for {} rows", tensor.numel, rows));
    }
    align(bias);
    return std::as_const(tensor).as<float>();
  }

  // Adds a product to those with equal input rows, unless it needs their results.
  void append(size_t input, size_t out, LinearStep linear, size_t index) {
    const auto [found, first] = linear_steps_.emplace(
        std::tuple(input, linear.kind, linear.rounds_rows), plan_.steps.size());
    if (source_.literal || linear.kind == LinearStep::Kind::kF32 || first) {
      plan_.steps.push_back(
          {.node = index, .reads = {input}, .writes = {out}, .linear = std::move(linear)});
      return;
    }
    PlanStep& step = plan_.steps[found->second];
    step.writes.push_back(out);
    step.linear->products.push_back(linear.products[0]);
    step.linear->tasks.push_back(linear.tasks[0]);
  }

  // -- the whole graph

  Status check_outputs() const {
    for (size_t i = 0; i < plan_.values.size(); ++i) {
      const xnnpack::Value& value = *graph_values_[i];
      if (value.is_output && !made_[i]) {
        return bad_input(
            fmt::format("graph value {}: no node makes argument {}", value.id, value.external));
      }
    }
    return {};
  }

  void find_last_uses() {
    for (size_t value = 0; value < plan_.values.size(); ++value) {
      if (!made_[value]) plan_.values[value].is_scratch = false;  // no step uses the value
    }
    for (size_t i = 0; i < plan_.steps.size(); ++i) {
      for (size_t value : plan_.steps[i].writes) plan_.values[value].last = i;
      for (size_t value : plan_.steps[i].reads) plan_.values[value].last = i;
    }
  }

  // Plans memory for the largest inputs. The largest sizes of dynamic inputs need not fit each
  // other.
  Status plan_first() {
    Status status = plan_.infer_shapes();
    if (status) return plan_.place(budget_);
    const bool dynamic = std::ranges::any_of(plan_.inputs, &Tensor::dynamic);
    return dynamic ? Status() : status;
  }

  const DelegateSource& source_;
  Delegate::Plan& plan_;
  MemoryBudget& budget_;
  std::unordered_map<uint32_t, size_t> index_;         // id -> index into Plan::values
  std::vector<const xnnpack::Value*> graph_values_;    // parallel to Plan::values
  std::vector<bool> made_;                             // parallel to Plan::values
  std::vector<Edge> results_;                          // outputs in other types than f32
  std::unordered_map<size_t, size_t> quantised_from_;  // for Convert: result -> input
  // Steps by input, kind and rounding.
  std::map<std::tuple<size_t, LinearStep::Kind, bool>, size_t> linear_steps_;
};

}  // namespace

Delegate::Delegate(std::unique_ptr<Plan> plan) : plan_(std::move(plan)) {}
Delegate::~Delegate() = default;

std::span<Tensor* const> Delegate::inputs() const { return plan_->inputs; }
std::span<Tensor* const> Delegate::outputs() const { return plan_->outputs; }

Result<std::unique_ptr<Delegate>> Delegate::compile(const DelegateSource& source,
                                                    DelegateMemory& memory, MemoryBudget& budget) {
  auto plan = std::make_unique<Plan>(memory);
  FERRY_RETURN_IF_ERROR(Compiler(source, *plan, budget).run());
  return std::unique_ptr<Delegate>(new Delegate(std::move(plan)));
}

}  // namespace ferry::runner
