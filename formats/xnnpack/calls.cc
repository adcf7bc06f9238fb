#include "formats/xnnpack/calls.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <unordered_set>

#include "core/dim_order.h"
#include "core/text.h"
#include "formats/pte/op_schema.h"
#include "formats/xnnpack/reader.h"

namespace ferry::xnnpack {

namespace {

std::optional<DType> dtype_of(Datatype datatype) {
  switch (datatype) {
    case Datatype::kF32:
      return DType::kF32;
    case Datatype::kF16:
      return DType::kF16;
    case Datatype::kBF16:
      return DType::kBF16;
    case Datatype::kI32:
      return DType::kI32;
    case Datatype::kQInt8:
      return DType::kI8;
    case Datatype::kQUInt8:
      return DType::kU8;
    default:
      return std::nullopt;
  }
}

bool fits(DType dtype, const Value& value) {
  if (value.is_output && value.datatype == Datatype::kI32 && dtype == DType::kI64) return true;
  return dtype_of(value.datatype) == dtype;
}

// Returns the sizes of a tensor in the order in which they lie in memory, as a blob states them.
Shape sizes_in_memory(const pte::Tensor& tensor) {
  Shape sizes(tensor.sizes.begin(), tensor.sizes.end());
  const std::vector<uint8_t>& order = tensor.dim_order;
  const bool ordered = order.size() == sizes.size() && is_permutation(order);
  return ordered ? stored_sizes(sizes, order) : sizes;
}

// Compares the shape of a tensor with that of a value. The exporter gives scalars one dimension.
bool has_shape(const Shape& sizes, const Value& value) {
  if (sizes.empty() && value.dims == std::vector<uint32_t>{1}) return true;
  return std::ranges::equal(sizes, value.dims);
}

// Returns the values of a graph by their position in the arguments of a call.
std::vector<const Value*> externals_of(const Graph& graph) {
  std::vector<const Value*> out(graph.num_externals, nullptr);
  for (const Value& value : graph.values) {
    if (value.external != kNone) out[value.external] = &value;
  }
  return out;
}

class CallCheck {
 public:
  CallCheck(const pte::Method& method, const std::string& file) : method_(method), file_(file) {
    inputs_.insert(method.inputs.begin(), method.inputs.end());
    outputs_.insert(method.outputs.begin(), method.outputs.end());
    for (const pte::Instruction& step : method.instructions) find_aliases(step);
  }

  Status check(size_t index, const pte::DelegateCall& call, const Graph& graph) {
    index_ = index;
    if (call.args.size() != graph.num_externals) {
      return error(
          fmt::format("{} arguments, its blob takes {}", call.args.size(), graph.num_externals));
    }
    const std::vector<const Value*> externals = externals_of(graph);
    for (size_t i = 0; i < externals.size(); ++i) {
      FERRY_RETURN_IF_ERROR(check_argument(i, call.args[i], *externals[i]));
    }
    for (size_t i = 0; i < externals.size(); ++i) {
      if (externals[i]->is_output) FERRY_RETURN_IF_ERROR(check_output(i, call.args));
    }
    return {};
  }

 private:
  Failure error(const std::string& what) const {
    return bad_input(fmt::format("{}: method {}: instruction {} (delegate): {}", file_,
                                 quoted(method_.name), index_, what));
  }

  // A view, or an operator that is not known, may make another tensor an alias of its argument.
  void find_aliases(const pte::Instruction& step) {
    const auto* call = std::get_if<pte::KernelCall>(&step);
    if (call == nullptr) return;
    const std::string name = method_.operators[static_cast<size_t>(call->op)].full_name();
    const pte::OpSchema* schema = pte::find_op_schema(name);
    if (schema == nullptr) {
      aliases_.insert(call->args.begin(), call->args.end());
    } else if (schema->name == "executorch_prim::et_view") {
      aliases_.insert(call->args.back());
    }
  }

  const pte::Tensor* tensor(int32_t index) const {
    return std::get_if<pte::Tensor>(&method_.values[static_cast<size_t>(index)]);
  }

  Status check_argument(size_t position, int32_t index, const Value& value) const {
    const pte::Tensor* given = tensor(index);
    if (given == nullptr) return error(fmt::format("argument {} is no tensor", position));
    if (!fits(given->dtype, value)) {
      return error(fmt::format("argument {} is {}, its blob has {}", position,
                               dtype_name(given->dtype), datatype_name(value.datatype)));
    }
    const Shape sizes = sizes_in_memory(*given);
    if (has_shape(sizes, value)) return {};
    return error(fmt::format("argument {} is [{}], its blob has [{}]", position,
                             fmt::join(sizes, ", "), fmt::join(value.dims, ", ")));
  }

  Status check_output(size_t position, const std::vector<int32_t>& args) const {
    const pte::Tensor& written = *tensor(args[position]);
    const bool constant = !written.allocation && (written.external || written.data_index > 0);
    const bool callers = !written.allocation && outputs_.contains(args[position]) &&
                         !inputs_.contains(args[position]) && !aliases_.contains(args[position]);
    if (constant || (!written.allocation && !callers)) {
      return error(fmt::format("writes argument {}, which is not its to write", position));
    }
    for (size_t i = 0; i < args.size(); ++i) {
      if (i != position && overlap(args[i], args[position])) {
        return error(fmt::format("arguments {} and {} share memory", i, position));
      }
    }
    return {};
  }

  bool overlap(int32_t a, int32_t b) const {
    if (a == b) return true;
    const pte::Tensor &left = *tensor(a), &right = *tensor(b);
    if (!left.allocation || !right.allocation) return false;
    const uint64_t left_begin = left.allocation->offset, right_begin = right.allocation->offset;
    return left.allocation->memory == right.allocation->memory &&
           left_begin < right_begin + *pte::tensor_bytes(right) &&
           right_begin < left_begin + *pte::tensor_bytes(left);
  }

  const pte::Method& method_;
  const std::string& file_;
  std::unordered_set<int32_t> inputs_, outputs_, aliases_;
  size_t index_ = 0;  // index of the instruction that is being checked
};

}  // namespace

Result<std::vector<std::optional<Graph>>> read_blobs(const pte::LoadedProgram& loaded,
                                                     const std::string& name) {
  std::vector<std::optional<Graph>> graphs(loaded.data.delegates.size());
  for (const pte::Method& method : loaded.program.methods) {
    for (const pte::Delegate& delegate : method.delegates) {
      if (delegate.backend != kBackend || graphs[delegate.data]) continue;
      graphs[delegate.data] = FERRY_TRY(read_blob(loaded.data.delegates[delegate.data],
                                                  fmt::format("{}: blob {}", name, delegate.data)));
    }
  }
  return graphs;
}

Status check_calls(const pte::Method& method, const std::vector<std::optional<Graph>>& graphs,
                   const std::string& name) {
  CallCheck check(method, name);
  for (size_t i = 0; i < method.instructions.size(); ++i) {
    const auto* call = std::get_if<pte::DelegateCall>(&method.instructions[i]);
    if (call == nullptr) continue;
    const pte::Delegate& delegate = method.delegates[static_cast<size_t>(call->delegate)];
    if (delegate.backend != kBackend) continue;
    FERRY_RETURN_IF_ERROR(check.check(i, *call, *graphs[delegate.data]));
  }
  return {};
}

}  // namespace ferry::xnnpack
