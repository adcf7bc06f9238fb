// Reads the bytes around the graph, whose layout is in blob_layout.h.
#include "formats/xnnpack/reader.h"

#include <fmt/format.h>

#include <string>

#include "blob_generated.h"
#include "core/checked.h"
#include "core/result.h"
#include "core/text.h"
#include "formats/pte/flat_file.h"
#include "formats/xnnpack/blob_layout.h"
#include "formats/xnnpack/graph.h"
#include "formats/xnnpack/node_table.h"
#include "formats/xnnpack/validate.h"

namespace ferry::xnnpack {
namespace {

using FlatDims = flatbuffers::Vector<uint32_t>;

class Decoder {
 public:
  // A FlatBuffer may share strings, so the copies are limited to a few times its size.
  Decoder(size_t flat_bytes, const std::string& file) : budget_(4 * flat_bytes), file_(file) {}

  Result<Graph> decode(const wire::Graph& root) {
    if (root.nodes() == nullptr || root.values() == nullptr) return error("no nodes or values");
    if (root.old_constants() && root.old_constants()->size() > 0) {
      return error("constants inside the FlatBuffer (an old format)", ErrorCode::kUnsupported);
    }
    Graph graph;
    graph.num_externals = root.num_externals();
    for (const wire::ValueSlot* slot : *root.values()) {
      graph.values.push_back(FERRY_TRY(decode_value(graph.values.size(), *slot)));
    }
    for (const wire::NodeSlot* slot : *root.nodes()) {
      graph.nodes.push_back(FERRY_TRY(decode_node(graph.nodes.size(), *slot)));
    }
    FERRY_RETURN_IF_ERROR(decode_constants(root, graph));
    return graph;
  }

 private:
  Failure error(const std::string& what, ErrorCode code = ErrorCode::kBadInput) const {
    return fail(code, fmt::format("{}: {}", file_, what));
  }
  Failure value_error(size_t index, const std::string& what,
                      ErrorCode code = ErrorCode::kBadInput) const {
    return error(fmt::format("entry {} of the values: {}", index, what), code);
  }
  Failure node_error(size_t index, NodeKind kind, const std::string& what,
                     ErrorCode code = ErrorCode::kBadInput) const {
    return error(fmt::format("node {} ({}): {}", index, node_name(kind), what), code);
  }

  // -- constants
  Status decode_constants(const wire::Graph& root, Graph& graph) {
    if (root.constants() == nullptr || root.constants()->size() == 0) return {};
    graph.constants.clear();
    for (const wire::Constant* in : *root.constants()) {
      graph.constants.push_back(FERRY_TRY(decode_constant(graph.constants.size(), *in)));
    }
    return {};
  }

  Result<Constant> decode_constant(size_t index, const wire::Constant& in) {
    if (index == 0) return Constant{};  // the placeholder, whose contents do not matter
    Constant out{"", in.offset(), in.size()};
    if (in.key() == nullptr) return out;
    if (in.key()->size() > budget_) return error("keys larger than the blob");
    budget_ -= in.key()->size();
    out.key = in.key()->str();
    if (out.key.empty()) return error(fmt::format("constant {}: an empty key", index));
    if (in.offset() != UINT64_MAX) {
      return error(fmt::format("constant {}: a key and an offset", index));
    }
    out.offset = 0;
    return out;
  }

  // -- values
  Result<Value> decode_value(size_t index, const wire::ValueSlot& slot) const {
    if (const auto* plain = slot.value_as_PlainValue()) return decode_plain(index, *plain);
    const auto* quantized = slot.value_as_QuantizedValue();
    if (quantized == nullptr || quantized->value() == nullptr) return value_error(index, "absent");
    Value value = FERRY_TRY(decode_plain(index, *quantized->value()));
    value.quantization = FERRY_TRY(decode_quantization(index, *quantized));
    return value;
  }

  Result<Value> decode_plain(size_t index, const wire::PlainValue& in) const {
    Value out;
    out.id = in.id();
    out.datatype = static_cast<Datatype>(in.datatype());
    const size_t rank = in.dims() ? in.dims()->size() : 0;
    if (rank != in.num_dims() || rank > kMaxRank) {
      return value_error(index, fmt::format("{} dimensions, stated {}", rank, in.num_dims()));
    }
    out.dims = ferry::wire::copy_vector<uint32_t>(in.dims());
    out.constant = in.constant();
    out.external = in.external();
    if ((in.flags() & ~3U) != 0) return value_error(index, fmt::format("flags {}", in.flags()));
    out.is_input = (in.flags() & 1) != 0;
    out.is_output = (in.flags() & 2) != 0;
    if (in.old_dynamic() != 0) {
      return value_error(index, "quantised at run time by itself (an old format)",
                         ErrorCode::kUnsupported);
    }
    return out;
  }

  Result<Quantization> decode_quantization(size_t index, const wire::QuantizedValue& in) const {
    if (const auto* q = in.quantization_as_PerTensor()) {
      return PerTensor{q->scale(), q->zero_point()};
    }
    if (const auto* q = in.quantization_as_PerToken()) return PerToken{q->num_nonbatch_dims()};
    if (const auto* q = in.quantization_as_PerChannel()) {
      FERRY_RETURN_IF_ERROR(check_no_old_scales(index, q->old_scales()));
      return PerChannel{q->channel_dim(), q->scales(), q->num_scales()};
    }
    if (const auto* q = in.quantization_as_PerChannelGroup()) {
      FERRY_RETURN_IF_ERROR(check_no_old_scales(index, q->old_scales()));
      FERRY_RETURN_IF_ERROR(check_no_old_scales(index, q->old_bf16_scales()));
      if (q->group_size() < 0) return value_error(index, "a negative group");
      return PerChannelGroup{q->channel_dim(), static_cast<uint32_t>(q->group_size()), q->scales(),
                             q->num_scales()};
    }
    return value_error(index, "no quantisation that is known");
  }

  template <class Vector>
  Status check_no_old_scales(size_t index, const Vector* scales) const {
    if (scales == nullptr || scales->size() == 0) return {};
    return value_error(index, "scales inside the FlatBuffer (an old format)",
                       ErrorCode::kUnsupported);
  }

  // -- nodes
  Result<Node> decode_node(size_t index, const wire::NodeSlot& slot) const {
    Node node;
    node.kind = static_cast<NodeKind>(slot.node_type());
    const NodeInfo* info = find_node_info(node.kind);
    if (info == nullptr || info->form == Form::kAbsent) {
      return node_error(index, node.kind, "unsupported node kind", ErrorCode::kUnsupported);
    }
    if (slot.node() == nullptr) return node_error(index, node.kind, "absent");
    if (const wire::Range* range = slot.output_range()) {
      node.output_range = MinMax{range->min(), range->max()};
    }
    node.debug_handle = slot.debug_handle();
    FERRY_RETURN_IF_ERROR(decode_table(index, slot, *info, node));
    return node;
  }

  // The verifier has checked that the table has the type of the kind.
  template <class Table>
  static const Table& table_of(const wire::NodeSlot& slot) {
    return *static_cast<const Table*>(slot.node());
  }

  Status decode_table(size_t index, const wire::NodeSlot& slot, const NodeInfo& info,
                      Node& node) const {
    switch (info.form) {
      case Form::kUnary:
        set_ports(table_of<wire::UnaryNode>(slot), node);
        return {};
      case Form::kBinary:
        decode_binary(table_of<wire::BinaryNode>(slot), node);
        return {};
      case Form::kFullyConnected:
        decode_fully_connected(table_of<wire::FullyConnectedNode>(slot), node);
        return {};
      case Form::kConcatenate:
        decode_concatenate(table_of<wire::ConcatenateNode>(slot), info.inputs, node);
        return {};
      case Form::kFactor:
        set_ports(table_of<wire::FactorNode>(slot), node);
        node.factors = {table_of<wire::FactorNode>(slot).factor()};
        return {};
      case Form::kTranspose:
        return decode_transpose(index, table_of<wire::TransposeNode>(slot), node);
      case Form::kReshape:
        return decode_reshape(index, table_of<wire::ReshapeNode>(slot), node);
      case Form::kSlice:
        return decode_slice(index, table_of<wire::SliceNode>(slot), node);
      case Form::kPad:
        return decode_pad(index, table_of<wire::PadNode>(slot), node);
      case Form::kConvolution:
        decode_convolution(table_of<wire::ConvolutionNode>(slot), node);
        return {};
      case Form::kPooling: {
        const auto& in = table_of<wire::PoolingNode>(slot);
        set_ports(in, node);
        set_window(in, node);
        return {};
      }
      case Form::kResize:
        set_ports(table_of<wire::ResizeNode>(slot), node);
        node.numbers = {table_of<wire::ResizeNode>(slot).height(),
                        table_of<wire::ResizeNode>(slot).width()};
        return {};
      case Form::kAbsent:
        break;
    }
    return {};
  }

  template <class Table>
  static void set_ports(const Table& in, Node& node) {
    node.inputs = {in.input()};
    node.outputs = {in.output()};
    node.flags = in.flags();
  }

  template <class Table>
  static void set_window(const Table& in, Node& node) {
    node.numbers = {in.pad_top(),    in.pad_right(), in.pad_bottom(), in.pad_left(),
                    in.kernel_y(),   in.kernel_x(),  in.stride_y(),   in.stride_x(),
                    in.dilation_y(), in.dilation_x()};
  }

  static void decode_convolution(const wire::ConvolutionNode& in, Node& node) {
    node.inputs = {in.input(), in.filter(), in.bias()};
    node.outputs = {in.output()};
    node.flags = in.flags();
    set_window(in, node);
    for (uint32_t number :
         {in.group_inputs(), in.group_outputs(), in.groups(), in.adjust_y(), in.adjust_x()}) {
      node.numbers.push_back(number);
    }
  }

  static void decode_binary(const wire::BinaryNode& in, Node& node) {
    node.inputs = {in.input1(), in.input2()};
    node.outputs = {in.output()};
    node.flags = in.flags();
  }

  static void decode_fully_connected(const wire::FullyConnectedNode& in, Node& node) {
    node.inputs = {in.input(), in.filter(), in.bias()};
    node.outputs = {in.output()};
    node.flags = in.flags();
  }

  static void decode_concatenate(const wire::ConcatenateNode& in, size_t inputs, Node& node) {
    node.inputs = {in.input1(), in.input2(), in.input3(), in.input4(), in.input5()};
    node.inputs.resize(inputs);
    node.outputs = {in.output()};
    node.flags = in.flags();
    node.numbers = {static_cast<int64_t>(in.axis())};
  }

  // Appends `from`, which has `count` entries.
  Status append_numbers(size_t index, const FlatDims* from, uint32_t count, Node& node) const {
    const size_t size = from ? from->size() : 0;
    if (size != count || size > kMaxRank) {
      return node_error(index, node.kind, fmt::format("{} numbers, stated {}", size, count));
    }
    for (uint32_t number : ferry::wire::copy_vector<uint32_t>(from)) node.numbers.push_back(number);
    return {};
  }

  Status decode_transpose(size_t index, const wire::TransposeNode& in, Node& node) const {
    set_ports(in, node);
    return append_numbers(index, in.permutation(), in.num_dims(), node);
  }

  Status decode_reshape(size_t index, const wire::ReshapeNode& in, Node& node) const {
    set_ports(in, node);
    return append_numbers(index, in.new_shape(), in.num_dims(), node);
  }

  Status decode_slice(size_t index, const wire::SliceNode& in, Node& node) const {
    set_ports(in, node);
    FERRY_RETURN_IF_ERROR(append_numbers(index, in.offsets(), in.num_dims(), node));
    return append_numbers(index, in.sizes(), in.num_dims(), node);
  }

  Status decode_pad(size_t index, const wire::PadNode& in, Node& node) const {
    set_ports(in, node);
    node.factors = {in.padding()};
    const uint32_t rank = in.before() ? in.before()->size() : 0;
    FERRY_RETURN_IF_ERROR(append_numbers(index, in.before(), rank, node));
    return append_numbers(index, in.after(), rank, node);
  }

  uint64_t budget_;
  const std::string& file_;
};

// Converts a verified FlatBuffer to a Graph. Checks only what the Graph type cannot represent:
// absent fields, old forms, counts that contradict each other, and kinds of nodes that are not
// supported. The offsets of constants are still relative to the region of constants.
Result<Graph> decode_graph(const wire::Graph& root, size_t flat_bytes, const std::string& name) {
  return Decoder(flat_bytes, name).decode(root);
}

using ferry::wire::load;
using ferry::wire::Range;
using Bytes = std::span<const std::byte>;

struct Header {
  Range flat;
  Range constants;
};

Status check_region(const Range& region, Bytes blob, size_t field, const std::string& name) {
  if (range_inside(region.offset, region.size, blob.size())) return {};
  return bad_input(fmt::format("{}: a region at {} of {} bytes in a blob of {} (offset {})", name,
                               region.offset, region.size, blob.size(), field));
}

Result<Header> read_header(Bytes blob, const std::string& name) {
  if (blob.size() < kHeaderBytes) {
    return bad_input(fmt::format("{}: {} bytes, shorter than the header", name, blob.size()));
  }
  if (std::memcmp(blob.data() + kMagicAt, kMagic.data(), kMagic.size()) != 0) {
    return bad_input(name + ": not a blob of the XNNPACK backend (offset 4)");
  }
  const auto length = load<uint16_t>(blob, kLengthAt);
  if (length != kHeaderBytes) {
    return bad_input(fmt::format("{}: header of {} bytes (offset {})", name, length, kLengthAt));
  }
  Header header{{load<uint32_t>(blob, kFlatAt), load<uint32_t>(blob, kFlatAt + 4)},
                {load<uint32_t>(blob, kConstantsAt), load<uint64_t>(blob, kConstantsAt + 4)}};
  FERRY_RETURN_IF_ERROR(check_region(header.flat, blob, kFlatAt, name));
  FERRY_RETURN_IF_ERROR(check_region(header.constants, blob, kConstantsAt, name));
  if (header.flat.offset < kHeaderBytes ||
      header.constants.offset < header.flat.offset + header.flat.size) {
    return bad_input(fmt::format("{}: regions overlap (offset {})", name, kFlatAt));
  }
  return header;
}

const char* identifier_of(Bytes flat) {
  const bool early = flat.size() >= 8 && std::memcmp(flat.data() + 4, kEarlyIdentifier, 4) == 0;
  return early ? kEarlyIdentifier : kIdentifier;
}

// Makes offsets that are relative to the region of constants relative to the blob.
Status place_constants(const Header& header, const std::string& name, Graph& graph) {
  for (size_t i = 1; i < graph.constants.size(); ++i) {
    Constant& constant = graph.constants[i];
    if (!constant.key.empty()) continue;
    if (!range_inside(constant.offset, constant.bytes, header.constants.size)) {
      return bad_input(
          fmt::format("{}: constant {} (offset {}, {} bytes) exceeds the {} of its "
                      "region",
                      name, i, constant.offset, constant.bytes, header.constants.size));
    }
    constant.offset += header.constants.offset;
  }
  return {};
}

}  // namespace

Result<Graph> read_blob(std::span<const std::byte> blob, const std::string& name) {
  const Header header = FERRY_TRY(read_header(blob, name));
  const ferry::wire::AlignedBytes flat(blob.subspan(header.flat.offset, header.flat.size));
  const auto* root = FERRY_TRY(
      ferry::wire::verified_root<wire::Graph>(flat.get(), identifier_of(flat.get()), name));
  Graph graph = FERRY_TRY(decode_graph(*root, header.flat.size, name));
  FERRY_RETURN_IF_ERROR(place_constants(header, name, graph));
  FERRY_RETURN_IF_ERROR(validate_graph(graph, name));
  return graph;
}

}  // namespace ferry::xnnpack
