#include "formats/xnnpack/writer.h"

#include <fmt/format.h>

#include <algorithm>

#include "blob_generated.h"
#include "core/checked.h"
#include "formats/pte/flat_file.h"
#include "formats/xnnpack/blob_layout.h"
#include "formats/xnnpack/node_table.h"
#include "formats/xnnpack/validate.h"

namespace ferry::xnnpack {

namespace {

using flatbuffers::FlatBufferBuilder;
using flatbuffers::Offset;

// There is one overload for each kind of quantisation; it returns the type on the wire and the
// table.
struct QuantizationEncoder {
  FlatBufferBuilder& b;
  using Union = std::pair<wire::AnyQuantization, Offset<void>>;

  // The vector is present though it is empty, because the runtime reads it.
  auto no_scales() const { return b.CreateVector(std::vector<float>()); }

  Union operator()(std::monostate) const { return {wire::AnyQuantization::NONE, 0}; }
  Union operator()(const PerTensor& q) const {
    return {wire::AnyQuantization::PerTensor,
            wire::CreatePerTensor(b, q.scale, q.zero_point).Union()};
  }
  Union operator()(const PerChannel& q) const {
    const auto table =
        wire::CreatePerChannel(b, no_scales(), q.channel_dim, q.scales, q.num_scales);
    return {wire::AnyQuantization::PerChannel, table.Union()};
  }
  Union operator()(const PerChannelGroup& q) const {
    const auto table =
        wire::CreatePerChannelGroup(b, no_scales(), q.channel_dim,
                                    static_cast<int32_t>(q.group_size), 0, q.scales, q.num_scales);
    return {wire::AnyQuantization::PerChannelGroup, table.Union()};
  }
  Union operator()(const PerToken& q) const {
    return {wire::AnyQuantization::PerToken, wire::CreatePerToken(b, q.num_nonbatch_dims).Union()};
  }
};

Offset<wire::ValueSlot> encode_value(FlatBufferBuilder& b, const Value& value) {
  const auto dims = b.CreateVector(value.dims);
  const uint32_t flags = (value.is_input ? 1U : 0U) | (value.is_output ? 2U : 0U);
  const auto plain = wire::CreatePlainValue(b, static_cast<int16_t>(value.datatype),
                                            static_cast<uint32_t>(value.dims.size()), dims,
                                            value.constant, value.external, flags, value.id);
  const auto [type, table] = std::visit(QuantizationEncoder{b}, value.quantization);
  if (type == wire::AnyQuantization::NONE) {
    return wire::CreateValueSlot(b, wire::AnyValue::PlainValue, plain.Union());
  }
  const auto quantized = wire::CreateQuantizedValue(b, plain, type, table);
  return wire::CreateValueSlot(b, wire::AnyValue::QuantizedValue, quantized.Union());
}

// Makes the table of a node by its form.
class NodeEncoder {
 public:
  NodeEncoder(FlatBufferBuilder& b, const Node& node) : b_(b), node_(node) {}

  Offset<void> encode(const NodeInfo& info) {
    const uint32_t in = input(0), out = node_.outputs[0], flags = node_.flags;
    const auto rank = static_cast<uint32_t>(node_.numbers.size());
    switch (info.form) {
      case Form::kUnary:
        return wire::CreateUnaryNode(b_, in, out, flags).Union();
      case Form::kBinary:
        return wire::CreateBinaryNode(b_, in, input(1), out, flags).Union();
      case Form::kFullyConnected:
        return wire::CreateFullyConnectedNode(b_, in, input(1), input(2), out, flags).Union();
      case Form::kConcatenate:
        return wire::CreateConcatenateNode(b_, static_cast<uint32_t>(node_.numbers[0]), in,
                                           input(1), input(2), input(3), out, flags, input(4))
            .Union();
      case Form::kTranspose:
        return wire::CreateTransposeNode(b_, rank, numbers(0, rank), in, out, flags).Union();
      case Form::kReshape:
        return wire::CreateReshapeNode(b_, rank, numbers(0, rank), in, out, flags).Union();
      case Form::kSlice:
        return slice(rank / 2).Union();
      case Form::kPad:
        return pad(rank / 2).Union();
      case Form::kFactor:
        return wire::CreateFactorNode(b_, node_.factors[0], in, out, flags).Union();
      case Form::kConvolution:
        return convolution().Union();
      case Form::kPooling:
        return wire::CreatePoolingNode(b_, n(0), n(1), n(2), n(3), n(4), n(5), n(6), n(7), n(8),
                                       n(9), in, out, flags)
            .Union();
      case Form::kResize:
        return wire::CreateResizeNode(b_, n(0), n(1), in, out, flags).Union();
      case Form::kAbsent:
        break;
    }
    return 0;
  }

 private:
  uint32_t input(size_t i) const { return i < node_.inputs.size() ? node_.inputs[i] : kNone; }

  Offset<flatbuffers::Vector<uint32_t>> numbers(size_t begin, size_t count) {
    std::vector<uint32_t> out;
    for (size_t i = begin; i < begin + count; ++i) {
      out.push_back(static_cast<uint32_t>(node_.numbers[i]));
    }
    return b_.CreateVector(out);
  }

  uint32_t n(size_t i) const { return static_cast<uint32_t>(node_.numbers[i]); }

  Offset<wire::ConvolutionNode> convolution() {
    return wire::CreateConvolutionNode(b_, n(0), n(1), n(2), n(3), n(4), n(5), n(6), n(7), n(8),
                                       n(9), n(10), n(11), n(12), n(13), n(14), input(0), input(1),
                                       input(2), node_.outputs[0], node_.flags);
  }

  Offset<wire::SliceNode> slice(uint32_t rank) {
    const auto offsets = numbers(0, rank);
    const auto sizes = numbers(rank, rank);
    return wire::CreateSliceNode(b_, rank, offsets, sizes, input(0), node_.outputs[0], node_.flags);
  }

  Offset<wire::PadNode> pad(uint32_t rank) {
    const auto before = numbers(0, rank);
    const auto after = numbers(rank, rank);
    return wire::CreatePadNode(b_, before, after, node_.factors[0], input(0), node_.outputs[0],
                               node_.flags);
  }

  FlatBufferBuilder& b_;
  const Node& node_;
};

Offset<wire::NodeSlot> encode_node(FlatBufferBuilder& b, const Node& node) {
  const auto table = NodeEncoder(b, node).encode(*find_node_info(node.kind));
  Offset<wire::Range> range;
  if (node.output_range) {
    range = wire::CreateRange(b, node.output_range->min, node.output_range->max);
  }
  return wire::CreateNodeSlot(b, static_cast<wire::AnyNode>(node.kind), table, node.debug_handle,
                              range);
}

// Returns ids in the order of arguments.
std::vector<uint32_t> ids_of(const Graph& graph, bool Value::*role) {
  std::vector<std::pair<uint32_t, uint32_t>> ids;
  for (const Value& value : graph.values) {
    if (value.*role) ids.emplace_back(value.external, value.id);
  }
  std::ranges::sort(ids);
  std::vector<uint32_t> out;
  for (const auto& [external, id] : ids) out.push_back(id);
  return out;
}

Offset<wire::Constant> encode_constant(FlatBufferBuilder& b, const Constant& constant) {
  const uint64_t offset = constant.key.empty() ? 0 : UINT64_MAX;
  return wire::CreateConstant(b, offset, constant.bytes, b.CreateString(constant.key));
}

template <class Table, class Item, class Encode>
auto encode_all(FlatBufferBuilder& b, const std::vector<Item>& items, const Encode& encode) {
  std::vector<Offset<Table>> out;
  for (const Item& item : items) out.push_back(encode(b, item));
  return b.CreateVector(out);
}

FlatBufferBuilder encode_graph(const Graph& graph) {
  FlatBufferBuilder b;
  const auto nodes = encode_all<wire::NodeSlot>(b, graph.nodes, encode_node);
  const auto values = encode_all<wire::ValueSlot>(b, graph.values, encode_value);
  const auto constants = encode_all<wire::Constant>(b, graph.constants, encode_constant);
  const auto version = b.CreateString("0");
  const auto inputs = b.CreateVector(ids_of(graph, &Value::is_input));
  const auto outputs = b.CreateVector(ids_of(graph, &Value::is_output));
  b.Finish(wire::CreateGraph(b, version, nodes, values, graph.num_externals, inputs, outputs, 0, 0,
                             constants),
           kIdentifier);
  return b;
}

Status check_keys(const Graph& graph) {
  for (size_t i = 1; i < graph.constants.size(); ++i) {
    if (!graph.constants[i].key.empty()) continue;
    return fail(ErrorCode::kUnsupported, fmt::format("blob: constant {} has no key", i));
  }
  return {};
}

}  // namespace

Result<std::vector<std::byte>> write_blob(const Graph& graph) {
  if (Status valid = validate_graph(graph, "blob"); !valid) {
    return fail(ErrorCode::kInternal, valid.error().message);
  }
  FERRY_RETURN_IF_ERROR(check_keys(graph));
  const FlatBufferBuilder flat = encode_graph(graph);
  const uint64_t begin = align_up(kHeaderBytes, kBlobAlignment);
  const uint64_t end = align_up(begin + flat.GetSize(), kBlobAlignment);
  std::vector<std::byte> blob(end);
  const std::span<std::byte> bytes(blob);
  std::memcpy(blob.data() + kMagicAt, kMagic.data(), kMagic.size());
  ferry::wire::store(bytes, kLengthAt, kHeaderBytes);
  ferry::wire::store(bytes, kFlatAt, static_cast<uint32_t>(begin));
  ferry::wire::store(bytes, kFlatAt + 4, static_cast<uint32_t>(flat.GetSize()));
  ferry::wire::store(bytes, kConstantsAt, static_cast<uint32_t>(end));
  std::memcpy(blob.data() + begin, flat.GetBufferPointer(), flat.GetSize());
  return blob;
}

}  // namespace ferry::xnnpack
