// Lowers graphs: each becomes one method of a program.
#include "graph/lower.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "formats/pte/op_schema.h"
#include "formats/xnnpack/writer.h"
#include "graph/dynamic_linears.h"
#include "graph/experts.h"
#include "graph/memory_plan.h"
#include "graph/method_builder.h"
#include "graph/shape_inference.h"

namespace ferry::graph {
namespace {

// The literals that are stored in a program, each content once. Index 0 is the placeholder.
class DataTable {
 public:
  uint32_t add(const Literal& literal);

  std::vector<Literal> literals = {Literal{}};
  std::vector<uint64_t> sizes = {0};

 private:
  std::map<std::string, uint32_t> index_;  // by key
};

// The names of weights, each once, in order of first use.
class WeightList {
 public:
  void add(const std::string& name);
  std::vector<std::string> names;

 private:
  std::set<std::string> known_;
};

// The data that the methods of one program share.
struct ProgramPools {
  StatePlan state;
  OutputMemory outputs = OutputMemory::kPlanned;
  DataTable constants, initial;
  WeightList weights;
  std::vector<LoweredFactor> factors;
  std::set<std::string> factor_names;
  WeightList named;  // constants of delegates

  // Methods agree on the types of a name (check_shared_values()).
  void add_factor(LoweredFactor factor) {
    if (factor_names.insert(factor.name).second) factors.push_back(std::move(factor));
  }
  std::vector<std::vector<std::byte>> delegates;
};

struct MethodAndDescription {
  pte::Method method;
  LoweredMethod description;
};

Failure defect(const std::string& what) { return fail(ErrorCode::kInternal, "lowering: " + what); }

// Values of the graph become values of the method when they are first needed, so that tensors
// precede the lists that contain them. Nodes become kernel calls by their operator's schema.
class MethodLowering {
 public:
  MethodLowering(const MethodGraph& method, ProgramPools& pools)
      : graph_(method.graph),
        pools_(pools),
        storage_(plan_storage(graph_, pools.state, pools.outputs)),
        index_(graph_.values.size(), -1) {
    description_.name = method.name;
  }

  Result<MethodAndDescription> run() {
    FERRY_RETURN_IF_ERROR(check_outputs());
    for (ValueId id : graph_.inputs) method_.inputs().push_back(FERRY_TRY(value(id)));
    FERRY_RETURN_IF_ERROR(lower_buffers());
    for (const Node& node : graph_.nodes) FERRY_RETURN_IF_ERROR(lower_node(node));
    for (ValueId id : graph_.outputs) method_.outputs().push_back(FERRY_TRY(value(id)));
    for (const Probe& probe : graph_.probes) {
      const auto index = FERRY_TRY(value(probe.value));
      description_.probes.push_back({probe.name, index});
    }
    for (ValueId id : graph_.inputs) description_.inputs.push_back(port(id));
    for (ValueId id : graph_.outputs) description_.outputs.push_back(port(id));
    description_.activation_bytes = storage_.activation_bytes;
    description_.activation_lower_bound = storage_.activation_lower_bound;
    pte::Method method = method_.take();
    method.name = description_.name;
    method.memory_bytes = {0, storage_.activation_bytes};
    if (!description_.buffers.empty()) method.memory_bytes.push_back(pools_.state.bytes);
    return MethodAndDescription{std::move(method), std::move(description_)};
  }

 private:
  // An output in the caller's memory must be made by an operator that writes it.
  Status check_outputs() const {
    if (pools_.outputs == OutputMemory::kPlanned) return {};
    for (const Node& node : graph_.nodes) {
      if (node.op != Op::kView || std::ranges::count(graph_.outputs, node.outs[0]) == 0) continue;
      return defect(fmt::format("output {} is a view", graph_[node.outs[0]].name));
    }
    return {};
  }

  // -- values
  // Returns the value of the method for `id`, which is made at the first request.
  Result<int32_t> value(ValueId id) {
    int32_t& index = index_[static_cast<size_t>(id.index)];
    if (index >= 0) return index;
    const Value& from = graph_[id];
    if (from.kind == Value::Kind::kInt) return index = method_.pool.add(int64_t{0});
    pte::Tensor tensor = FERRY_TRY(shaped(from));
    tensor.allocation = storage_.places[static_cast<size_t>(id.index)];
    if (from.origin == Value::Origin::kWeight) {
      tensor.external = true;
      tensor.fqn = from.name;
      if (from.is_factor) {
        pools_.add_factor({from.name, from.dtype, bounds(from),
                           graph_.literals[static_cast<size_t>(from.literal)]});
      } else {
        pools_.weights.add(from.name);
      }
    } else if (from.origin == Value::Origin::kLiteral) {
      tensor.data_index = pools_.constants.add(graph_.literals[static_cast<size_t>(from.literal)]);
    } else if (from.origin == Value::Origin::kBuffer) {
      tensor.fqn = from.name;
      if (from.stored) tensor.data_index = pools_.initial.add(contents(id));
    }
    return index = method_.pool.add(std::move(tensor));
  }

  Result<pte::Tensor> shaped(const Value& from) const {
    // To the runtime, tables of 4-bit codes are bytes with two codes each.
    const bool nibbles = from.dtype == DType::kI4;
    pte::Tensor tensor;
    tensor.dtype = nibbles ? DType::kU8 : from.dtype;
    for (size_t i = 0; i < from.shape.size(); ++i) {
      const bool halved = nibbles && i + 1 == from.shape.size();
      const int64_t size = graph_.max_of(from.shape[i]) / (halved ? 2 : 1);
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
      description_.buffers.push_back({buffer.name, index, buffer.dtype, bounds(buffer),
                                      graph_.max_bytes(id), method_.pool.tensor(index).data_index});
    }
    return {};
  }

  Shape bounds(const Value& from) const {
    Shape shape;
    for (const Dim& dim : from.shape) shape.push_back(graph_.max_of(dim));
    return shape;
  }

  // -- arguments
  Result<int32_t> int_arg(const IntArg& arg) {
    if (arg.value.valid()) return value(arg.value);
    return method_.pool.constant(arg.number);
  }

  Result<int32_t> lower_arg(const pte::ArgSchema& schema, const Arg& arg) {
    if (std::holds_alternative<std::monostate>(arg)) return method_.pool.none();
    if (const auto* id = std::get_if<ValueId>(&arg)) return value(*id);
    if (const auto* number = std::get_if<IntArg>(&arg)) return int_arg(*number);
    if (const auto* list = std::get_if<std::vector<IntArg>>(&arg)) {
      std::vector<int32_t> items;
      for (const IntArg& item : *list) items.push_back(FERRY_TRY(int_arg(item)));
      return method_.pool.int_list(items);
    }
    if (const auto* list = std::get_if<TensorListArg>(&arg)) {
      std::vector<int32_t> items = FERRY_TRY(values(list->items));
      if (schema.kind == pte::ArgKind::kOptionalTensorList) {
        return method_.pool.add(pte::OptionalTensorList{std::move(items)});
      }
      return method_.pool.add(pte::TensorList{std::move(items)});
    }
    if (const auto* number = std::get_if<double>(&arg)) return method_.pool.constant(*number);
    if (const auto* flag = std::get_if<bool>(&arg)) return method_.pool.constant(*flag);
    if (const auto* word = std::get_if<std::string>(&arg)) return method_.pool.constant(*word);
    return method_.pool.constant(int64_t{dtype_info(std::get<DType>(arg)).executorch});
  }

  // -- nodes
  Status lower_node(const Node& node) {
    if (node.op == Op::kExperts) return lower_experts(node);
    if (node.op == Op::kDynamicLinears) return lower_delegate(node);
    const pte::OpSchema* schema = op_schema(node.op);
    if (schema == nullptr) return defect(fmt::format("unknown operator {}", op_name(node.op)));
    const size_t given = node.args.size() - op_info(node.op).pseudo_args;
    std::vector<int32_t> args;
    for (const pte::ArgSchema& arg : schema->args) {
      if (arg.out) break;  // outs come last
      if (args.size() == given) {
        return defect(fmt::format("too few arguments of {}", op_name(node.op)));
      }
      args.push_back(FERRY_TRY(lower_arg(arg, node.args[args.size()])));
    }
    if (args.size() != given) {
      return defect(fmt::format("too many arguments of {}", op_name(node.op)));
    }
    method_.call(*schema, std::move(args), FERRY_TRY(values(node.outs)));
    return {};
  }

  Status lower_delegate(const Node& node) {
    std::vector<int32_t> args = {
        FERRY_TRY(value(std::get<ValueId>(node.args[DynamicLinearsArgs::kX])))};
    for (ValueId out : node.outs) args.push_back(FERRY_TRY(value(out)));
    const xnnpack::Graph blob = delegate_graph(graph_, node);
    for (const xnnpack::Constant& constant : blob.constants) {
      if (!constant.key.empty()) pools_.named.add(constant.key);
    }
    std::vector<std::byte> bytes = FERRY_TRY(xnnpack::write_blob(blob));
    method_.delegate({std::string(xnnpack::kBackend), add_blob(std::move(bytes))}, std::move(args));
    return {};
  }

  uint32_t add_blob(std::vector<std::byte> blob) {
    pools_.delegates.push_back(std::move(blob));
    return static_cast<uint32_t>(pools_.delegates.size() - 1);
  }

  Status lower_experts(const Node& node) {
    const ExpertsProgram program = experts_program(graph_, node);
    const auto& scratch = storage_.places[static_cast<size_t>(node.outs[1].index)];
    if (!scratch) return defect("experts without memory");
    std::vector<int32_t> locals;
    for (const ExpertsProgram::Local& local : program.locals) {
      locals.push_back(FERRY_TRY(expert_local(local, program, *scratch)));
    }
    method_.move(method_.pool.constant(int64_t{0}), locals[program.counter.local]);
    for (const auto& call : program.setup) FERRY_RETURN_IF_ERROR(expert_call(call, locals));
    const int32_t turn = method_.here();
    for (const auto& call : program.body) FERRY_RETURN_IF_ERROR(expert_call(call, locals));
    method_.jump_if_false(locals[program.done.local], turn);
    return {};
  }

  Result<int32_t> expert_local(const ExpertsProgram::Local& local, const ExpertsProgram& program,
                               const pte::Allocation& scratch) {
    using Kind = ExpertsProgram::Local::Kind;
    if (local.kind == Kind::kPort) return value(local.port);
    if (local.kind == Kind::kInt) return method_.pool.add(int64_t{0});
    if (local.kind == Kind::kBool) return method_.pool.add(false);
    Value shape;
    shape.dtype = local.dtype;
    shape.shape = local.shape;
    pte::Tensor tensor = FERRY_TRY(shaped(shape));
    if (local.dynamic) tensor.dynamism = pte::Dynamism::kDynamicBound;
    tensor.allocation =
        pte::Allocation{scratch.memory, scratch.offset + program.scratch.offsets[local.slot]};
    return method_.pool.add(std::move(tensor));
  }

  Status expert_call(const ExpertsProgram::Call& call, const std::vector<int32_t>& locals) {
    const pte::OpSchema* schema = pte::find_op_schema(call.op);
    if (schema == nullptr) return defect(fmt::format("unknown operator {}", call.op));
    std::vector<int32_t> args;
    for (const ExpertsProgram::Operand& operand : call.inputs) {
      args.push_back(expert_operand(operand, locals));
    }
    std::vector<int32_t> outs;
    for (ExpertsProgram::Ref out : call.outs) outs.push_back(locals[out.local]);
    method_.call(*schema, std::move(args), outs);
    return {};
  }

  int32_t expert_operand(const ExpertsProgram::Operand& operand,
                         const std::vector<int32_t>& locals) {
    if (const auto* ref = std::get_if<ExpertsProgram::Ref>(&operand)) return locals[ref->local];
    if (const auto* list = std::get_if<ExpertsProgram::RefList>(&operand)) {
      std::vector<int32_t> items;
      for (ExpertsProgram::Ref ref : list->items) items.push_back(locals[ref.local]);
      return method_.pool.add(pte::OptionalTensorList{std::move(items)});
    }
    if (const auto* number = std::get_if<int64_t>(&operand)) return method_.pool.constant(*number);
    if (const auto* number = std::get_if<double>(&operand)) return method_.pool.constant(*number);
    if (const auto* flag = std::get_if<bool>(&operand)) return method_.pool.constant(*flag);
    if (const auto* text = std::get_if<std::string>(&operand)) return method_.pool.constant(*text);
    return method_.pool.none();
  }

  LoweredPort port(ValueId id) const {
    return {graph_[id].name, graph_[id].dtype, bounds(graph_[id]), graph_[id].encoding};
  }

  const Graph& graph_;
  ProgramPools& pools_;
  StoragePlan storage_;
  std::vector<int32_t> index_;  // by value of the graph; -1 if not needed yet
  MethodBuilder method_;
  LoweredMethod description_;
};

uint32_t DataTable::add(const Literal& literal) {
  const auto [entry, fresh] =
      index_.try_emplace(literal.key, static_cast<uint32_t>(literals.size()));
  if (fresh) {
    literals.push_back(literal);
    sizes.push_back(literal.bytes);
  }
  return entry->second;
}

void WeightList::add(const std::string& name) {
  if (known_.insert(name).second) names.push_back(name);
}

// Adds to `pools` the data that the method uses. The graph must be valid and agree with the
// program's other methods (check_shared_values).
Result<MethodAndDescription> lower_method(const MethodGraph& method, ProgramPools& pools) {
  return MethodLowering(method, pools).run();
}

pte::Method constant(const MetadataMethod& entry) {
  pte::Method method;
  method.name = entry.name;
  method.memory_bytes = {0};
  for (const MetadataMethod::Value& value : entry.values) {
    method.outputs.push_back(static_cast<int32_t>(method.values.size()));
    std::visit([&](const auto& v) { method.values.emplace_back(v); }, value);
  }
  return method;
}

}  // namespace

Result<LoweredProgram> lower(std::span<const MethodGraph> methods,
                             const std::vector<MetadataMethod>& metadata, OutputMemory outputs) {
  for (const MethodGraph& method : methods) FERRY_RETURN_IF_ERROR(validate(method.graph));
  FERRY_RETURN_IF_ERROR(check_shared_values(methods));
  LoweredProgram out;
  ProgramPools pools;
  pools.state = plan_state(methods);
  pools.outputs = outputs;
  for (const MethodGraph& method : methods) {
    MethodAndDescription lowered = FERRY_TRY(lower_method(method, pools));
    out.program.methods.push_back(std::move(lowered.method));
    out.methods.push_back(std::move(lowered.description));
  }
  for (const MetadataMethod& entry : metadata) out.program.methods.push_back(constant(entry));
  out.sizes = {std::move(pools.constants.sizes), std::move(pools.initial.sizes)};
  out.constants = std::move(pools.constants.literals);
  out.initial = std::move(pools.initial.literals);
  out.weights = std::move(pools.weights.names);
  out.factors = std::move(pools.factors);
  out.named = std::move(pools.named.names);
  out.delegates = std::move(pools.delegates);
  for (const auto& blob : out.delegates) out.sizes.delegates.push_back(blob.size());
  out.state_bytes = pools.state.bytes;
  return out;
}

}  // namespace ferry::graph
