#include "proof/program_constants.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <variant>

#include "core/checked.h"
#include "core/program_interface.h"
#include "formats/xnnpack/calls.h"
#include "formats/xnnpack/validate.h"

namespace ferry::proof {
namespace {

using ConstantBytes = std::span<const std::byte>;
using Packing = ProgramMatrix::Packing;

// Operators whose first arguments are codes [rows, columns], scales and zero points.
struct CodedOperator {
  std::string_view name;
  int bits;
  size_t codes;  // position of the codes among the arguments; scales and zero points follow
  bool table;
};
constexpr CodedOperator kCodedOperators[] = {
    {"quantized_decomposed::embedding_byte.out", 8, 0, true},
    {"quantized_decomposed::embedding_byte.dtype_out", 8, 0, true},
    {"quantized_decomposed::embedding_4bit.out", 4, 0, true},
    {"quantized_decomposed::embedding_4bit.dtype_out", 4, 0, true},
    {"quantized_decomposed::embedding_2bit.out", 2, 0, true},
    {"quantized_decomposed::embedding_2bit.dtype_out", 2, 0, true},
    {"quantized_decomposed::mixed_linear.out", 8, 1, false},
};

int codes_per_byte(Packing packing) {
  switch (packing) {
    case Packing::kLowFirst:
    case Packing::kHighFirst:
      return 2;
    case Packing::kFourCodes:
      return 4;
    default:
      return 1;
  }
}

int code_of(Packing packing, const std::byte* row, size_t column) {
  const auto byte = [&](size_t i) { return std::to_integer<int>(row[i]); };
  switch (packing) {
    case Packing::kI8:
      return static_cast<int8_t>(byte(column));
    case Packing::kU8:
      return byte(column);
    case Packing::kLowFirst:
      return ((byte(column / 2) >> (column % 2 == 0 ? 0 : 4)) & 15) - 8;
    case Packing::kHighFirst:
      return ((byte(column / 2) >> (column % 2 == 0 ? 4 : 0)) & 15) - 8;
    case Packing::kFourCodes:
      return ((byte(column / 4) >> (column % 4 * 2)) & 3) - 2;
    case Packing::kValues:
      return 0;
  }
  return 0;
}

float number_at(DType dtype, ConstantBytes bytes, int64_t index) {
  float value = 0;
  to_f32(dtype, bytes.data() + index * dtype_bytes(dtype), &value, 1);
  return value;
}

// Whether the spans have the bytes that the sizes ask for.
bool is_whole(const ProgramMatrix& m) {
  const auto elements = checked_mul(m.rows, m.columns);
  const auto scales = checked_mul(m.rows, m.groups);
  if (m.rows <= 0 || m.columns <= 1 || !elements || !scales || *elements > INT64_MAX / 8) {
    return false;
  }
  if (!m.is_coded()) {
    return is_castable(m.dtype) && std::ssize(m.bytes) >= *elements * dtype_bytes(m.dtype);
  }
  const int64_t per_byte = codes_per_byte(m.packing);
  const int64_t least = *scales * dtype_bytes(m.scale_dtype);
  return m.groups > 0 && m.columns % m.groups == 0 && m.columns % per_byte == 0 &&
         std::ssize(m.bytes) >= *elements / per_byte && is_castable(m.scale_dtype) &&
         std::ssize(m.scales) >= least &&
         (m.zero_points.empty() || std::ssize(m.zero_points) >= least);
}

// The matrices of one program.
class ProgramReader {
 public:
  ProgramReader(const packer::Bundle& bundle, size_t program)
      : bundle_(bundle), loaded_(bundle.programs()[program].loaded) {
    for (const packer::BundleData* data : bundle.data_of(program)) add_named(*data);
    for (const pte::NamedData& data : loaded_.program.named_data) {
      named_.emplace(data.key, loaded_.data.named[data.data]);
    }
  }

  Status run(ProgramConstants& out) {
    out_ = &out;
    graphs_ = FERRY_TRY(xnnpack::read_blobs(loaded_, bundle_.path()));
    for (const pte::Method& method : loaded_.program.methods) add_method(method);
    return {};
  }

 private:
  void add_named(const packer::BundleData& data) {
    for (const ptd::NamedTensor& tensor : data.content.tensors) {
      const ptd::Segment& segment = data.content.segments[tensor.segment];
      named_.emplace(tensor.key, data.file.bytes().subspan(segment.offset, segment.size));
    }
  }

  void add(ProgramMatrix matrix) {
    if (!is_whole(matrix)) return;
    const auto key = std::tuple(matrix.bytes.data(), matrix.scales.data(), matrix.packing);
    std::vector<ProgramMatrix>& list = out_->matrices;
    const auto [known, fresh] = seen_.emplace(key, list.size());
    if (fresh) {
      list.push_back(std::move(matrix));
    } else if (matrix.table) {
      list[known->second].table = true;
    }
  }

  void add(ProgramVector vector) {
    if (vector.size < 2 || !is_castable(vector.dtype) ||
        std::ssize(vector.bytes) / dtype_bytes(vector.dtype) < vector.size) {
      return;
    }
    if (seen_vectors_.insert(vector.bytes.data()).second) {
      out_->vectors.push_back(std::move(vector));
    }
  }

  // -- operators

  void add_method(const pte::Method& method) {
    for (size_t i = 0; i < method.instructions.size(); ++i) {
      if (const auto* call = std::get_if<pte::KernelCall>(&method.instructions[i])) {
        add_call(method, *call, i);
      } else if (const auto* other = std::get_if<pte::DelegateCall>(&method.instructions[i])) {
        const pte::Delegate& delegate = method.delegates[static_cast<size_t>(other->delegate)];
        if (graphs_[delegate.data]) add_graph(*graphs_[delegate.data], delegate.data, i);
        for (const int32_t value : other->args) {
          add_values(method, value, fmt::format("instruction {} (delegate)", i), /*table=*/false);
        }
      }
    }
  }

  static const pte::Tensor* tensor_of(const pte::Method& method, int32_t value) {
    return value < 0 ? nullptr
                     : std::get_if<pte::Tensor>(&method.values[static_cast<size_t>(value)]);
  }

  // Returns the bytes of a constant; empty for other values.
  ConstantBytes bytes_of(const pte::Tensor* tensor) const {
    if (tensor == nullptr || tensor->allocation) return {};
    if (tensor->external) {
      const auto found = named_.find(tensor->fqn);
      return found == named_.end() ? ConstantBytes() : found->second;
    }
    return tensor->data_index == 0 ? ConstantBytes() : loaded_.data.constants[tensor->data_index];
  }

  void add_call(const pte::Method& method, const pte::KernelCall& call, size_t index) {
    const std::string name = method.operators[static_cast<size_t>(call.op)].full_name();
    const std::string place = fmt::format("instruction {} ({})", index, name);
    const auto* coded = std::ranges::find(kCodedOperators, name, &CodedOperator::name);
    if (coded != std::end(kCodedOperators)) return add_codes(method, call, *coded, place);
    for (const int32_t value : call.args) {
      add_values(method, value, place, name.starts_with("aten::embedding"));
    }
  }

  // Adds a constant in values, if `value` is one.
  void add_values(const pte::Method& method, int32_t value, const std::string& place, bool table) {
    const pte::Tensor* tensor = tensor_of(method, value);
    if (tensor == nullptr || tensor->sizes.empty() || !is_castable(tensor->dtype)) return;
    const Shape shape(tensor->sizes.begin(), tensor->sizes.end());
    const int64_t elements = checked_numel(shape).value_or(0);
    const ConstantBytes bytes = bytes_of(tensor);
    if (elements <= 0 || bytes.empty()) return;
    if (elements == shape.back()) {
      add(ProgramVector{.place = place, .size = elements, .dtype = tensor->dtype, .bytes = bytes});
    }
    if (shape.size() < 2) return;
    ProgramMatrix matrix{.place = place, .table = table};
    matrix.columns = shape.back();
    matrix.rows = elements / matrix.columns;
    matrix.dtype = tensor->dtype;
    matrix.bytes = bytes;
    add(std::move(matrix));
  }

  void add_codes(const pte::Method& method, const pte::KernelCall& call, const CodedOperator& op,
                 const std::string& place) {
    if (call.args.size() < op.codes + 3) return;
    const pte::Tensor* codes = tensor_of(method, call.args[op.codes]);
    const pte::Tensor* scales = tensor_of(method, call.args[op.codes + 1]);
    if (codes == nullptr || scales == nullptr || codes->sizes.size() != 2) return;
    ProgramMatrix matrix{.place = place, .table = op.table};
    matrix.packing = op.bits == 4                 ? Packing::kHighFirst
                     : op.bits == 2               ? Packing::kFourCodes
                     : codes->dtype == DType::kI8 ? Packing::kI8
                                                  : Packing::kU8;
    matrix.rows = codes->sizes[0];
    matrix.columns = int64_t{codes->sizes[1]} * codes_per_byte(matrix.packing);
    matrix.bytes = bytes_of(codes);
    matrix.groups = scales->sizes.size() == 2 ? scales->sizes[1] : 1;
    matrix.scale_dtype = scales->dtype;
    matrix.scales = bytes_of(scales);
    const pte::Tensor* zero_points = tensor_of(method, call.args[op.codes + 2]);
    matrix.zero_points = bytes_of(zero_points);
    if (zero_points != nullptr && zero_points->dtype != scales->dtype) return;
    add(std::move(matrix));
  }

  // -- delegates

  void add_graph(const xnnpack::Graph& graph, uint32_t blob, size_t index) {
    const ConstantBytes bytes = loaded_.data.delegates[blob];
    std::unordered_map<uint32_t, const xnnpack::Value*> values;
    for (const xnnpack::Value& value : graph.values) values.emplace(value.id, &value);
    for (size_t i = 0; i < graph.nodes.size(); ++i) {
      const xnnpack::Node& node = graph.nodes[i];
      const std::string place = fmt::format("instruction {}, node {} of the delegate", index, i);
      const bool has_filter = node.kind == xnnpack::NodeKind::kFullyConnected;
      for (size_t k = 0; k < node.inputs.size(); ++k) {
        const auto found = values.find(node.inputs[k]);
        if (found == values.end()) continue;
        const xnnpack::Value& value = *found->second;
        if (has_filter && k == 1) add_filter(graph, value, bytes, place);
        add_vector(graph, value, bytes, place);
      }
    }
  }

  void add_vector(const xnnpack::Graph& graph, const xnnpack::Value& value, ConstantBytes blob,
                  const std::string& place) {
    const std::optional<DType> dtype = dtype_of(value.datatype);
    const Shape shape(value.dims.begin(), value.dims.end());
    if (!dtype || shape.empty() || checked_numel(shape).value_or(0) != shape.back()) return;
    add(ProgramVector{.place = place,
                      .size = shape.back(),
                      .dtype = *dtype,
                      .bytes = constant(graph, value.constant, blob)});
  }

  ConstantBytes constant(const xnnpack::Graph& graph, uint32_t index, ConstantBytes blob) const {
    if (index == 0 || index >= graph.constants.size()) return {};
    const xnnpack::NamedLookup lookup = [&](std::string_view key) -> std::optional<ConstantBytes> {
      const auto found = named_.find(key);
      return found == named_.end() ? std::nullopt : std::optional(found->second);
    };
    const auto bytes =
        xnnpack::constant_bytes(graph.constants[index], blob, lookup, bundle_.path());
    return bytes ? *bytes : ConstantBytes();
  }

  void add_filter(const xnnpack::Graph& graph, const xnnpack::Value& filter, ConstantBytes blob,
                  std::string place) {
    if (filter.dims.size() != 2) return;
    ProgramMatrix matrix{.place = std::move(place), .rows = filter.dims[0]};
    matrix.columns = filter.dims[1];
    matrix.bytes = constant(graph, filter.constant, blob);
    const std::optional<DType> dtype = dtype_of(filter.datatype);
    matrix.dtype = dtype.value_or(DType::kF32);
    switch (filter.datatype) {
      case xnnpack::Datatype::kQCInt8:
        matrix.packing = Packing::kI8;
        break;
      case xnnpack::Datatype::kQCInt4:
      case xnnpack::Datatype::kQBInt4:
        matrix.packing = Packing::kLowFirst;
        break;
      default:
        if (!dtype) return;
    }
    if (const auto* rows = std::get_if<xnnpack::PerChannel>(&filter.quantization)) {
      if (rows->channel_dim != 0) return;
      matrix.scales = constant(graph, rows->scales, blob);
    } else if (const auto* groups = std::get_if<xnnpack::PerChannelGroup>(&filter.quantization)) {
      if (groups->group_size == 0) return;
      matrix.groups = matrix.columns / groups->group_size;
      matrix.scale_dtype = DType::kBF16;
      matrix.scales = constant(graph, groups->scales, blob);
    }
    add(std::move(matrix));
  }

  // Returns the dtype of values; nothing for codes.
  static std::optional<DType> dtype_of(xnnpack::Datatype datatype) {
    switch (datatype) {
      case xnnpack::Datatype::kF32:
        return DType::kF32;
      case xnnpack::Datatype::kF16:
        return DType::kF16;
      case xnnpack::Datatype::kBF16:
        return DType::kBF16;
      default:
        return std::nullopt;
    }
  }

  const packer::Bundle& bundle_;
  const pte::LoadedProgram& loaded_;
  std::map<std::string, ConstantBytes, std::less<>> named_;  // data files take precedence
  std::vector<std::optional<xnnpack::Graph>> graphs_;
  std::map<std::tuple<const std::byte*, const std::byte*, Packing>, size_t> seen_;
  std::set<const std::byte*> seen_vectors_;
  ProgramConstants* out_ = nullptr;
};

constexpr std::string_view kRoles[] = {kTokenEmbeddingRole, kTextDecoderRole};

}  // namespace

uint64_t ProgramMatrix::bytes_of(int64_t values) const {
  const int64_t size = is_coded() ? 1 : dtype_bytes(dtype);
  return static_cast<uint64_t>(values / codes_per_byte(packing) * size);
}

void ProgramMatrix::read_row(int64_t row, std::span<float> out) const {
  if (!is_coded()) {
    to_f32(dtype, bytes.data() + row * columns * dtype_bytes(dtype), out.data(), out.size());
    return;
  }
  const std::byte* codes = bytes.data() + row * columns / codes_per_byte(packing);
  const auto size = static_cast<size_t>(columns / groups);
  for (size_t at = 0, group = 0; at < out.size(); at += size, ++group) {
    const float times = scale(row, static_cast<int64_t>(group));
    const float zero = zero_point(row, static_cast<int64_t>(group));
    for (size_t i = at; i < at + size; ++i) {
      out[i] = (static_cast<float>(code_of(packing, codes, i)) - zero) * times;
    }
  }
}

float ProgramMatrix::scale(int64_t row, int64_t group) const {
  return number_at(scale_dtype, scales, row * groups + group);
}

float ProgramMatrix::zero_point(int64_t row, int64_t group) const {
  return zero_points.empty() ? 0 : number_at(scale_dtype, zero_points, row * groups + group);
}

std::pair<int, int> ProgramMatrix::code_range() const {
  switch (packing) {
    case Packing::kI8:
      return {-128, 127};
    case Packing::kU8:
      return {0, 255};
    case Packing::kFourCodes:
      return {-2, 1};
    default:
      return {-8, 7};
  }
}

std::vector<float> ProgramVector::values() const {
  std::vector<float> list(static_cast<size_t>(size));
  to_f32(dtype, bytes.data(), list.data(), list.size());
  return list;
}

Result<ProgramConstants> constants_of(const packer::Bundle& bundle) {
  ProgramConstants constants;
  for (const std::string_view role : kRoles) {
    for (const size_t program : bundle.programs_of(role)) {
      FERRY_RETURN_IF_ERROR(ProgramReader(bundle, program).run(constants));
    }
  }
  return constants;
}

}  // namespace ferry::proof
