#include <fmt/format.h>
#include <native_graph_generated.h>

#include <bit>
#include <string_view>
#include <unordered_set>
#include <utility>

#include "core/text.h"
#include "formats/pte/flat_file.h"
#include "formats/ptn/package.h"

namespace ferry::ptn {
namespace {

std::string_view view(const flatbuffers::String* text) {
  return text == nullptr ? std::string_view() : std::string_view(text->c_str(), text->size());
}
std::string text_of(const flatbuffers::String* text) { return std::string(view(text)); }

// Calls `each` for the elements of a vector, which may be absent, until one fails.
template <class Vector, class Each>
Status for_all(const Vector* vector, const Each& each) {
  if (vector == nullptr) return {};
  for (const auto* item : *vector) FERRY_RETURN_IF_ERROR(each(item));
  return {};
}

class GraphReader {
 public:
  // `base` names the method.
  explicit GraphReader(const std::string& base) : GraphReader(base, base) {}
  GraphReader(std::string base, std::string where)
      : base_(std::move(base)), where_(std::move(where)) {}

  // `outside` are names that the method defines beside the inputs.
  Status read(const native_wire::Graph& graph, const std::vector<std::string_view>& outside,
              std::map<std::string, size_t>& operators) {
    FERRY_RETURN_IF_ERROR(for_all(graph.inputs(), [&](const auto* s) { return define(view(s)); }));
    for (const std::string_view name : outside) FERRY_RETURN_IF_ERROR(define(name));
    FERRY_RETURN_IF_ERROR(for_all(graph.tensor_values(), [&](const auto* value) -> Status {
      metas_.emplace(view(value->name()), value->meta());
      return {};
    }));
    FERRY_RETURN_IF_ERROR(
        for_all(graph.nodes(), [&](const auto* node) { return read_node(*node, operators); }));
    return for_all(graph.outputs(), [&](const auto* s) { return use(view(s), "an output"); });
  }

  Result<const native_wire::TensorMeta*> meta(std::string_view name) const {
    const auto found = metas_.find(name);
    if (found == metas_.end()) return bad(fmt::format("{} has no shape", quoted(name, 60)));
    return found->second;
  }
  Result<Value> value(std::string_view name) const {
    return read_value(std::string(name), *FERRY_TRY(meta(name)));
  }

  Result<DType> dtype(int8_t type) const {
    const std::optional<DType> known = dtype_from_executorch(type);
    if (known) return *known;
    return fail(ErrorCode::kUnsupported, fmt::format("{}: dtype {}", where_, int{type}));
  }

  Result<Value> read_value(std::string name, const native_wire::TensorMeta& meta) const {
    Value value;
    value.name = std::move(name);
    value.dtype = FERRY_TRY(dtype(meta.dtype()));
    FERRY_RETURN_IF_ERROR(for_all(meta.sizes(), [&](const auto* dim) -> Status {
      if (dim->min() < 0 || (dim->max() >= 0 && dim->max() < dim->min())) {
        return bad(fmt::format("{} has a dimension of {} to {}", quoted(value.name, 60), dim->min(),
                               dim->max()));
      }
      value.sizes.push_back(dim->max() < 0 ? -1 : dim->max());
      value.dynamic |= dim->max() != dim->min();
      return {};
    }));
    value.quantisation = FERRY_TRY(quantisation(value, meta.quant()));
    return value;
  }

  Failure bad(const std::string& what) const { return bad_input(where_ + ": " + what); }

 private:
  Status define(std::string_view name) {
    if (defined_.insert(name).second) return {};
    return bad(fmt::format("{} is defined twice", quoted(name, 60)));
  }
  Status use(std::string_view name, std::string_view user) const {
    if (defined_.contains(name)) return {};
    return bad(fmt::format("{} of {} is not defined before", quoted(name, 60), user));
  }

  Result<std::string> quantisation(const Value& value, const native_wire::QuantSpec* spec) const {
    if (spec == nullptr || spec->scheme() == nullptr) return std::string();
    if (value.dtype != DType::kU8)
      return bad(quoted(value.name, 60) + " has codes of another dtype than u8");
    if (const auto* packed = spec->scheme_as_PackedQuant()) return text_of(packed->codec());
    const auto* affine = spec->scheme_as_AffineGroup();
    if (affine == nullptr) {
      return fail(ErrorCode::kUnsupported,
                  fmt::format("{}: quantisation {} of {}", where_,
                              static_cast<int>(spec->scheme_type()), quoted(value.name, 60)));
    }
    const int64_t range = int64_t{affine->quant_max()} - affine->quant_min();
    if (range < 1 || range > 255 || affine->group_size() < 0) {
      return bad(fmt::format("{} has codes of {} to {} in groups of {}", quoted(value.name, 60),
                             affine->quant_min(), affine->quant_max(), affine->group_size()));
    }
    const auto bits = std::bit_width(static_cast<uint64_t>(range));
    if (affine->group_size() == 0) return fmt::format("{} bits in rows", bits);
    return fmt::format("{} bits in groups of {}", bits, affine->group_size());
  }

  Status read_node(const native_wire::Node& node, std::map<std::string, size_t>& operators) {
    const std::string_view name = view(node.name());
    if (!nodes_.insert(name).second) return bad(fmt::format("two nodes {}", quoted(name, 60)));
    const std::string user = fmt::format("the node {}", quoted(name, 60));
    FERRY_RETURN_IF_ERROR(for_all(node.inputs(), [&](const auto* argument) {
      return read_argument(*argument->arg(), user, operators);
    }));
    if (node.op_kind() == native_wire::OpKind::Placeholder) return use(name, user);
    if (node.op_kind() == native_wire::OpKind::CallFunction) ++operators[text_of(node.target())];
    return for_all(node.outputs(), [&](const auto* output) -> Status {
      if (!view(output->alias_of()).empty()) {
        FERRY_RETURN_IF_ERROR(use(view(output->alias_of()), user));
      }
      if (output->kind() != native_wire::ValueKind::TensorList) return define(view(output->name()));
      return for_all(output->names(), [&](const auto* s) { return define(view(s)); });
    });
  }

  Status use_if_named(const flatbuffers::String* ref, const std::string& user) const {
    return view(ref).empty() ? Status() : use(view(ref), user);
  }

  Status read_argument(const native_wire::Argument& argument, const std::string& user,
                       std::map<std::string, size_t>& operators) {
    using Kind = native_wire::ArgumentValue;
    // The verifier accepts a kind without a value.
    if (argument.value() == nullptr) return bad(fmt::format("{} has an empty argument", user));
    switch (argument.value_type()) {
      case Kind::TensorArg:
        return use(view(argument.value_as_TensorArg()->name()), user);
      case Kind::IntArg:
        return use_if_named(argument.value_as_IntArg()->ref(), user);
      case Kind::FloatArg:
        return use_if_named(argument.value_as_FloatArg()->ref(), user);
      case Kind::BoolArg:
        return use_if_named(argument.value_as_BoolArg()->ref(), user);
      case Kind::IntListArg:
        return read_int_list(*argument.value_as_IntListArg(), user);
      case Kind::TensorListArg:
        return for_all(argument.value_as_TensorListArg()->names(),
                       [&](const auto* s) { return use(view(s), user); });
      case Kind::OptionalTensorListArg:
        return read_optional_list(*argument.value_as_OptionalTensorListArg(), user);
      case Kind::GraphArg: {
        // An inner graph has names of its own. FlatBuffers' verifier bounds the nesting.
        const auto& inner = *argument.value_as_GraphArg();
        return GraphReader(base_,
                           fmt::format("{}: graph {}", base_, quoted(view(inner.name()), 60)))
            .read(*inner.graph(), {}, operators);
      }
      default:
        return {};
    }
  }

  Status read_int_list(const native_wire::IntListArg& list, const std::string& user) const {
    if (list.refs() == nullptr) return {};
    if (list.refs()->size() != list.values()->size()) {
      return bad(fmt::format("{} has {} integers and {} references", user, list.values()->size(),
                             list.refs()->size()));
    }
    return for_all(list.refs(), [&](const auto* s) { return use_if_named(s, user); });
  }

  Status read_optional_list(const native_wire::OptionalTensorListArg& list,
                            const std::string& user) const {
    if (list.names()->size() != list.has_value()->size()) {
      return bad(fmt::format("{} has {} tensors and {} flags", user, list.names()->size(),
                             list.has_value()->size()));
    }
    for (flatbuffers::uoffset_t i = 0; i < list.names()->size(); ++i) {
      if (list.has_value()->Get(i) == 0) continue;
      FERRY_RETURN_IF_ERROR(use(view(list.names()->Get(i)), user));
    }
    return {};
  }

  std::string base_, where_;
  std::unordered_set<std::string_view> defined_, nodes_;
  std::map<std::string_view, const native_wire::TensorMeta*> metas_;
};

Result<Constant> read_constant(const native_wire::NamedTensorRef& ref, const GraphReader& reader) {
  Constant constant;
  constant.key = text_of(ref.data_key());
  constant.value = FERRY_TRY(reader.read_value(text_of(ref.name()), *ref.meta()));
  constant.mutated = ref.mutated();
  if (constant.value.dynamic) return reader.bad(quoted(constant.key, 60) + " has no fixed shape");
  const auto* quant = ref.meta()->quant();
  const auto* affine = quant == nullptr ? nullptr : quant->scheme_as_AffineGroup();
  if (affine == nullptr) return constant;
  const DType scales = FERRY_TRY(reader.dtype(affine->scale_dtype()));
  constant.parameters.emplace_back(text_of(affine->scale_data_key()), scales);
  if (!view(affine->zero_point_data_key()).empty()) {
    const DType zero_points = FERRY_TRY(reader.dtype(affine->zero_point_dtype()));
    constant.parameters.emplace_back(text_of(affine->zero_point_data_key()), zero_points);
  }
  return constant;
}

// Other outputs write buffers and inputs back.
Status add_outputs(const native_wire::Method& wire, const GraphReader& reader,
                   std::vector<Value>& outputs) {
  std::unordered_set<std::string_view> written;
  FERRY_RETURN_IF_ERROR(for_all(wire.output_specs(), [&](const auto* spec) -> Status {
    if (spec->kind() != native_wire::OutputKind::UserOutput) written.insert(view(spec->name()));
    return {};
  }));
  return for_all(wire.graph()->outputs(), [&](const auto* s) -> Status {
    Value value = FERRY_TRY(reader.value(view(s)));
    if (!written.contains(view(s))) outputs.push_back(std::move(value));
    return {};
  });
}

Result<Method> read_method(const native_wire::Method& wire, const std::string& name) {
  Method method{.name = text_of(wire.name())};
  GraphReader reader(fmt::format("{}: method {}", name, quoted(method.name, 60)));
  std::vector<std::string_view> outside;
  FERRY_RETURN_IF_ERROR(for_all(wire.constants(), [&](const auto* constant) -> Status {
    outside.push_back(view(constant->name()));
    return {};
  }));
  FERRY_RETURN_IF_ERROR(for_all(wire.mutable_buffers(), [&](const auto* buffer) -> Status {
    outside.push_back(view(buffer->name()));
    return {};
  }));
  FERRY_RETURN_IF_ERROR(reader.read(*wire.graph(), outside, method.operators));
  FERRY_RETURN_IF_ERROR(for_all(wire.graph()->inputs(), [&](const auto* s) -> Status {
    method.inputs.push_back(FERRY_TRY(reader.value(view(s))));
    return {};
  }));
  FERRY_RETURN_IF_ERROR(add_outputs(wire, reader, method.outputs));
  FERRY_RETURN_IF_ERROR(for_all(wire.constants(), [&](const auto* constant) -> Status {
    Constant read = FERRY_TRY(read_constant(*constant, reader));
    method.constants.push_back(std::move(read));
    return {};
  }));
  FERRY_RETURN_IF_ERROR(for_all(wire.mutable_buffers(), [&](const auto* buffer) -> Status {
    method.buffers.push_back(FERRY_TRY(reader.value(view(buffer->name()))));
    method.buffers.back().name = text_of(buffer->fqn());
    return {};
  }));
  return method;
}

}  // namespace

Result<std::vector<Method>> read_graph(std::span<const std::byte> graph, const std::string& name) {
  const wire::AlignedBytes aligned(graph);
  const auto* program =
      FERRY_TRY(wire::verified_root<native_wire::Program>(aligned.get(), "NPTG", name));
  std::vector<Method> methods;
  std::unordered_set<std::string> names;
  FERRY_RETURN_IF_ERROR(for_all(program->methods(), [&](const auto* method) -> Status {
    methods.push_back(FERRY_TRY(read_method(*method, name)));
    if (names.insert(methods.back().name).second) return {};
    return bad_input(fmt::format("{}: two methods {}", name, quoted(methods.back().name, 60)));
  }));
  if (methods.empty()) return bad_input(name + ": no methods");
  return methods;
}

}  // namespace ferry::ptn
