// Lowering. Values of the graph become values of the method when they are first needed, so that
// tensors precede the lists that hold them; nodes become kernel calls by their operator's schema.
#include "graph/lower.h"

#include <fmt/format.h>

#include <limits>
#include <map>

#include "formats/pte/op_schema.h"
#include "graph/shape_inference.h"
#include "graph/storage_plan.h"
#include "graph/value_pool.h"

namespace ferry {

namespace {

tl::unexpected<Error> defect(const std::string& what) {
  return fail(ErrorCode::kInternal, "lowering: " + what);
}

// Literals that are stored in the program, each content once. Index 0 is the placeholder.
class DataTable {
 public:
  uint32_t add(const Literal& literal) {
    const auto [entry, fresh] =
        index_.try_emplace(literal.key, static_cast<uint32_t>(literals.size()));
    if (fresh) {
      literals.push_back(literal);
      sizes.push_back(literal.bytes);
    }
    return entry->second;
  }
  std::vector<Literal> literals = {Literal{}};
  std::vector<uint64_t> sizes = {0};

 private:
  std::map<std::string, uint32_t> index_;
};

class Lowering {
 public:
  explicit Lowering(const Graph& graph)
      : graph_(graph), storage_(plan_storage(graph)), index_(graph.values.size(), -1) {}

  Result<LoweredProgram> run(const std::vector<MetadataMethod>& metadata) {
    for (ValueId id : graph_.inputs) method_.inputs.push_back(FERRY_TRY(value(id)));
    FERRY_CHECK(lower_buffers());
    for (const Node& node : graph_.nodes) FERRY_CHECK(lower_node(node));
    for (ValueId id : graph_.outputs) method_.outputs.push_back(FERRY_TRY(value(id)));
    for (const Probe& probe : graph_.probes) {
      out_.probes.push_back({probe.name, FERRY_TRY(value(probe.value))});
    }
    finish();
    for (const MetadataMethod& entry : metadata) out_.program.methods.push_back(constant(entry));
    return std::move(out_);
  }

 private:
  // -- values --
  // The value of the method that stands for `id`, made when it is first asked for.
  Result<int32_t> value(ValueId id) {
    int32_t& index = index_[static_cast<size_t>(id.index)];
    if (index >= 0) return index;
    const Value& from = graph_[id];
    if (from.kind == Value::Kind::kInt) return index = pool_.add(int64_t{0});
    pte::Tensor tensor = FERRY_TRY(shaped(from));
    tensor.allocation = storage_.places[static_cast<size_t>(id.index)];
    if (from.origin == Value::Origin::kWeight) {
      tensor.external = true;
      tensor.fqn = from.name;
      out_.weights.push_back(from.name);
    } else if (from.origin == Value::Origin::kLiteral) {
      tensor.data_index = constants_.add(graph_.literals[static_cast<size_t>(from.literal)]);
    } else if (from.origin == Value::Origin::kBuffer) {
      tensor.fqn = from.name;
      if (from.stored) tensor.data_index = initial_.add(contents(id));
    }
    return index = pool_.add(std::move(tensor));
  }

  Result<pte::Tensor> shaped(const Value& from) const {
    pte::Tensor tensor;
    tensor.dtype = from.dtype;
    for (size_t i = 0; i < from.shape.size(); ++i) {
      const int64_t size = graph_.max_of(from.shape[i]);
      if (size < 0 || size > std::numeric_limits<int32_t>::max()) {
        return fail(ErrorCode::kUnsupported, fmt::format("a tensor dimension of {}", size));
      }
      tensor.sizes.push_back(static_cast<int32_t>(size));
      tensor.dim_order.push_back(static_cast<uint8_t>(i));
      if (!from.shape[i].is_static()) tensor.dynamism = pte::Dynamism::kDynamicBound;
    }
    return tensor;
  }

  Literal contents(ValueId buffer) const {
    const int32_t literal = graph_[buffer].literal;
    return literal < 0 ? zero_literal(graph_.max_bytes(buffer))
                       : graph_.literals[static_cast<size_t>(literal)];
  }

  Result<std::vector<int32_t>> values(const std::vector<ValueId>& ids) {
    std::vector<int32_t> out;
    for (ValueId id : ids) out.push_back(FERRY_TRY(value(id)));
    return out;
  }

  Status lower_buffers() {
    for (size_t i = 0; i < graph_.values.size(); ++i) {
      const Value& buffer = graph_.values[i];
      if (buffer.origin != Value::Origin::kBuffer) continue;
      const ValueId id{static_cast<int32_t>(i)};
      const int32_t index = FERRY_TRY(value(id));
      out_.buffers.push_back({buffer.name, index, buffer.dtype, bounds(buffer),
                              graph_.max_bytes(id), pool_.tensor(index).data_index});
    }
    return {};
  }

  Shape bounds(const Value& from) const {
    Shape shape;
    for (const Dim& dim : from.shape) shape.push_back(graph_.max_of(dim));
    return shape;
  }

  // -- arguments --
  Result<int32_t> int_arg(const IntArg& arg) {
    if (arg.value.valid()) return value(arg.value);
    return pool_.constant(arg.number);
  }

  Result<int32_t> lower_arg(const pte::ArgSchema& schema, const Arg& arg) {
    if (std::holds_alternative<std::monostate>(arg)) return pool_.none();
    if (const auto* id = std::get_if<ValueId>(&arg)) return value(*id);
    if (const auto* number = std::get_if<IntArg>(&arg)) return int_arg(*number);
    if (const auto* list = std::get_if<std::vector<IntArg>>(&arg)) {
      std::vector<int32_t> items;
      for (const IntArg& item : *list) items.push_back(FERRY_TRY(int_arg(item)));
      return pool_.int_list(items);
    }
    if (const auto* list = std::get_if<TensorListArg>(&arg)) {
      std::vector<int32_t> items = FERRY_TRY(values(list->items));
      if (schema.kind == pte::ArgKind::kOptionalTensorList) {
        return pool_.add(pte::OptionalTensorList{std::move(items)});
      }
      return pool_.add(pte::TensorList{std::move(items)});
    }
    if (const auto* number = std::get_if<double>(&arg)) return pool_.constant(*number);
    if (const auto* flag = std::get_if<bool>(&arg)) return pool_.constant(*flag);
    if (const auto* word = std::get_if<std::string>(&arg)) return pool_.constant(*word);
    return pool_.constant(int64_t{dtype_info(std::get<DType>(arg)).executorch});
  }

  // -- nodes --
  Status lower_node(const Node& node) {
    const pte::OpSchema* schema = pte::find_op_schema(op_name(node.op));
    if (schema == nullptr) return defect(fmt::format("unknown operator {}", op_name(node.op)));
    const size_t given = node.args.size() - op_info(node.op).pseudo_args;
    pte::KernelCall call{operator_index(*schema), {}};
    size_t next = 0;
    for (const pte::ArgSchema& arg : schema->args) {
      if (arg.out) break;  // outs come last
      if (next == given) return defect(fmt::format("too few arguments of {}", op_name(node.op)));
      call.args.push_back(FERRY_TRY(lower_arg(arg, node.args[next++])));
    }
    if (next != given) return defect(fmt::format("too many arguments of {}", op_name(node.op)));
    FERRY_CHECK(lower_outs(node, *schema, call.args));
    method_.instructions.emplace_back(std::move(call));
    return {};
  }

  // Appends the outs and the repeated result (op_schema.h, ResultStyle).
  Status lower_outs(const Node& node, const pte::OpSchema& schema, std::vector<int32_t>& args) {
    const std::vector<int32_t> outs = FERRY_TRY(values(node.outs));
    switch (schema.result) {
      case pte::ResultStyle::kRepeatSelf:
        args.push_back(args[0]);
        return {};
      case pte::ResultStyle::kTrailingOut:
        args.push_back(outs[0]);
        return {};
      case pte::ResultStyle::kRepeatOut:
        break;
    }
    if (schema.args.back().kind == pte::ArgKind::kTensorList) {
      args.push_back(pool_.add(pte::TensorList{outs}));
    } else {
      args.insert(args.end(), outs.begin(), outs.end());
    }
    const bool single = schema.args.back().kind == pte::ArgKind::kTensor && outs.size() == 1;
    args.push_back(single ? outs[0] : pool_.add(pte::TensorList{outs}));
    return {};
  }

  int32_t operator_index(const pte::OpSchema& schema) {
    const auto next = static_cast<int32_t>(method_.operators.size());
    const auto [entry, fresh] = operators_.try_emplace(&schema, next);
    if (fresh) method_.operators.push_back({schema.name, schema.overload});
    return entry->second;
  }

  // -- the rest --
  LoweredPort port(ValueId id) const {
    return {graph_[id].name, graph_[id].dtype, bounds(graph_[id])};
  }

  void finish() {
    for (ValueId id : graph_.inputs) out_.inputs.push_back(port(id));
    for (ValueId id : graph_.outputs) out_.outputs.push_back(port(id));
    out_.activation_bytes = storage_.activation_bytes;
    out_.activation_lower_bound = storage_.activation_lower_bound;
    out_.state_bytes = storage_.state_bytes;
    method_.name = "forward";
    method_.memory_bytes = {0, storage_.activation_bytes};
    if (!out_.buffers.empty()) method_.memory_bytes.push_back(storage_.state_bytes);
    method_.values = pool_.take();
    out_.program.methods.push_back(std::move(method_));
    out_.sizes = {std::move(constants_.sizes), std::move(initial_.sizes)};
    out_.constants = std::move(constants_.literals);
    out_.initial = std::move(initial_.literals);
  }

  static pte::Method constant(const MetadataMethod& entry) {
    pte::Method method;
    method.name = entry.name;
    method.memory_bytes = {0};
    if (const auto* list = std::get_if<std::vector<int64_t>>(&entry.value)) {
      method.values.assign(list->begin(), list->end());
    } else if (const auto* flag = std::get_if<bool>(&entry.value)) {
      method.values.emplace_back(*flag);
    } else {
      method.values.emplace_back(std::get<int64_t>(entry.value));
    }
    for (size_t i = 0; i < method.values.size(); ++i) {
      method.outputs.push_back(static_cast<int32_t>(i));
    }
    return method;
  }

  const Graph& graph_;
  StoragePlan storage_;
  std::vector<int32_t> index_;  // of each value of the graph, -1: not needed yet
  ValuePool pool_;
  DataTable constants_, initial_;
  std::map<const pte::OpSchema*, int32_t> operators_;  // looked up, never iterated
  pte::Method method_;
  LoweredProgram out_;
};

}  // namespace

Result<LoweredProgram> lower(const Model& model, const std::vector<MetadataMethod>& metadata) {
  FERRY_CHECK(validate(model.graph));
  return Lowering(model.graph).run(metadata);
}

}  // namespace ferry
