#include "graph/dynamic_linears.h"

namespace ferry::graph {
namespace {

const std::vector<ValueId>& list(const Node& node, DynamicLinearsArgs::Arg arg) {
  return std::get<TensorListArg>(node.args[arg]).items;
}

class BlobBuilder {
 public:
  BlobBuilder(const Graph& graph, const Node& node) : graph_(graph), node_(node) {}

  xnnpack::Graph run() {
    const auto x = std::get<ValueId>(node_.args[DynamicLinearsArgs::kX]);
    const uint32_t input = add(activation(x, 0, /*input=*/true));
    const uint32_t coded = add_coded(x, input);
    const std::vector<ValueId>& codes = list(node_, DynamicLinearsArgs::kCodes);
    const std::vector<ValueId>& scales = list(node_, DynamicLinearsArgs::kScales);
    for (size_t i = 0; i < codes.size(); ++i) {
      const uint32_t filter = add(matrix(graph_[codes[i]], graph_[scales[i]]));
      const uint32_t output =
          add(activation(node_.outs[i], static_cast<uint32_t>(i) + 1, /*input=*/false));
      out_.nodes.push_back({.kind = xnnpack::NodeKind::kFullyConnected,
                            .inputs = {coded, filter, xnnpack::kNone},
                            .outputs = {output}});
    }
    out_.num_externals = static_cast<uint32_t>(1 + codes.size());
    return std::move(out_);
  }

 private:
  uint32_t add(xnnpack::Value value) {
    value.id = static_cast<uint32_t>(out_.values.size());
    out_.values.push_back(std::move(value));
    return out_.values.back().id;
  }

  std::vector<uint32_t> bounds(const Dims& shape) const {
    std::vector<uint32_t> dims;
    for (const Dim& dim : shape) dims.push_back(static_cast<uint32_t>(graph_.max_of(dim)));
    return dims;
  }

  xnnpack::Value activation(ValueId id, uint32_t position, bool input) const {
    return {.datatype = xnnpack::Datatype::kF32,
            .dims = bounds(graph_[id].shape),
            .external = position,
            .is_input = input,
            .is_output = !input};
  }

  // Adds the rows of the input as 8-bit codes.
  uint32_t add_coded(ValueId x, uint32_t input) {
    const uint32_t coded = add({.datatype = xnnpack::Datatype::kQDInt8,
                                .dims = bounds(graph_[x].shape),
                                .quantization = xnnpack::PerToken{}});
    out_.nodes.push_back(
        {.kind = xnnpack::NodeKind::kConvert, .inputs = {input}, .outputs = {coded}});
    return coded;
  }

  uint32_t constant(const Value& value) {
    const auto bits = static_cast<uint64_t>(dtype_bits(value.dtype));
    uint64_t elements = 1;
    for (const Dim& dim : value.shape) elements *= static_cast<uint64_t>(dim.base);
    out_.constants.push_back({.key = value.name, .bytes = elements * bits / 8});
    return static_cast<uint32_t>(out_.constants.size() - 1);
  }

  xnnpack::Value matrix(const Value& codes, const Value& scales) {
    const bool grouped = codes.dtype == DType::kI4;
    xnnpack::Value value{
        .datatype = grouped ? xnnpack::Datatype::kQBInt4 : xnnpack::Datatype::kQCInt8,
        .dims = bounds(codes.shape),
        .constant = constant(codes)};
    const int64_t groups = scales.shape.size() < 2 ? 1 : scales.shape[1].base;
    const uint32_t index = constant(scales);
    const auto count = static_cast<uint32_t>(codes.shape[0].base * groups);
    if (grouped) {
      value.quantization = xnnpack::PerChannelGroup{
          .group_size = static_cast<uint32_t>(codes.shape[1].base / groups),
          .scales = index,
          .num_scales = count};
    } else {
      value.quantization = xnnpack::PerChannel{.scales = index, .num_scales = count};
    }
    return value;
  }

  const Graph& graph_;
  const Node& node_;
  xnnpack::Graph out_;
};

}  // namespace

const pte::OpSchema& dynamic_linears_schema() {
  static const pte::OpSchema schema = [] {
    pte::OpSchema made;
    made.name = "dynamic linears";
    made.result = pte::ResultStyle::kRepeatOut;
    made.args = {{"x", pte::ArgKind::kTensor},
                 {"codes", pte::ArgKind::kTensorList},
                 {"scales", pte::ArgKind::kTensorList}};
    return made;
  }();
  return schema;
}

xnnpack::Graph delegate_graph(const Graph& graph, const Node& node) {
  return BlobBuilder(graph, node).run();
}

}  // namespace ferry::graph
