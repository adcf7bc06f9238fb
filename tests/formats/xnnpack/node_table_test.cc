// A blob and a program for every kind of node that the reader knows, made by the project's writers.
// They are the seeds of the fuzz targets, and every word of them is changed here.
//
// After a change of the writers, FERRY_WRITE_SEEDS=1 ferry_tests --gtest_filter='XnnpackKinds.*'
// writes testdata/fuzz/xnnpack_blob/kind_* and testdata/fuzz/execute/kind_* again.
#include <fmt/format.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "formats/pte/writer.h"
#include "formats/xnnpack/node_table.h"
#include "formats/xnnpack/reader.h"
#include "formats/xnnpack/validate.h"
#include "formats/xnnpack/writer.h"
#include "tests/formats/xnnpack_graphs.h"

namespace ferry::xnnpack::node_table_test {
namespace {

using Bytes = std::vector<std::byte>;
using Shape = std::vector<uint32_t>;

struct Kind {
  std::string name;
  Graph graph;
};

// Makes a graph of one node with these numbers, from `from` to `to`.
Graph moving_graph(NodeKind kind, const std::vector<Shape>& from, Shape to,
                   std::vector<int64_t> numbers) {
  Graph graph = node_graph(kind, from, std::move(to));
  graph.nodes[0].numbers = std::move(numbers);
  return graph;
}

// Makes a graph of a convolution with a bias in two groups, whose filter has a height of 3 and a
// width of 2.
Graph convolution_graph(NodeKind kind) {
  const bool depthwise = kind == NodeKind::kDepthwiseConv2d;
  const bool transposed = kind == NodeKind::kConvTranspose2d;
  const uint32_t inputs = depthwise ? 1 : 2;  // of a group
  Value filter = plain(1, depthwise ? Shape{1, 3, 2, 6} : Shape{6, 3, 2, inputs});
  filter.constant = 1;
  Value bias = plain(2, {6});
  bias.constant = 2;
  Graph graph;
  graph.values = {input(0, {1, 5, 4, 2 * inputs}, 0), filter, bias,
                  output(3, {1, transposed ? 11U : 2U, 4, 6}, 1)};
  graph.num_externals = 2;
  graph.constants = {{}, {"w", 0, 144 * inputs}, {"b", 0, 24}};
  graph.nodes = {{kind, {0, 1, 2}, {3}}};
  graph.nodes[0].numbers = {1, 0, 0, 1, 3, 2, 2, 1, 1, 1, inputs, 3, 2, transposed ? 1 : 0, 0};
  return graph;
}

Graph graph_of(const NodeInfo& info) {
  const Shape shape = {2, 3, 4};
  switch (info.form) {
    case Form::kConcatenate:
      return moving_graph(info.kind, std::vector<Shape>(info.inputs, shape),
                          {2, 3U * info.inputs, 4}, {1});
    case Form::kTranspose:
      return moving_graph(info.kind, {{2, 3, 4, 5}}, {2, 4, 3, 5}, {0, 2, 1, 3});
    case Form::kReshape:
      return moving_graph(info.kind, {shape}, {6, 4}, {6, 0});
    case Form::kSlice:
      return moving_graph(info.kind, {shape}, {2, 2, 3}, {0, 1, 1, 0, 2, 3});
    case Form::kPad:
      return moving_graph(info.kind, {shape}, {3, 3, 6}, {1, 0, 0, 0, 0, 2});
    case Form::kConvolution:
      return convolution_graph(info.kind);
    case Form::kPooling: {
      const int64_t dilation = info.kind == NodeKind::kMaxPooling2d ? 1 : 0;
      return moving_graph(info.kind, {{1, 5, 4, 3}}, {1, 2, 4, 3},
                          {1, 0, 0, 1, 3, 2, 2, 1, dilation, dilation});
    }
    case Form::kResize:
      return moving_graph(info.kind, {{1, 2, 4, 3}}, {1, 5, 3, 3}, {5, 3});
    case Form::kBinary:
      if (info.kind == NodeKind::kPrelu) return node_graph(info.kind, {shape, {4}}, shape);
      if (info.kind != NodeKind::kBatchMatrixMultiply) {
        return node_graph(info.kind, {shape, {3, 1}}, shape);
      }
      return node_graph(info.kind, {{2, 3, 4}, {2, 4, 5}}, {2, 3, 5});
    default:
      if (info.kind == NodeKind::kGlobalAvgPooling2d) {
        return node_graph(info.kind, {{2, 3, 4, 5}}, {2, 5});
      }
      return node_graph(info.kind, {shape}, shape);
  }
}

// Makes a graph of one linear layer from 32 to 8, whose filter has this type.
Graph coded_graph(Datatype datatype, uint64_t bytes, Quantization quantization, uint64_t scales) {
  Graph graph = linear_graph();
  graph.values[0].dims = graph.values[1].dims = {1, 2, 32};
  graph.values[2].dims = {8, 32};
  graph.values[2].datatype = datatype;
  graph.values[2].quantization = quantization;
  graph.values[3].dims = {8};
  graph.values[4].dims = {1, 2, 8};
  graph.constants = {{}, {"w", 0, bytes}, {"w.scales", 0, scales}, {"b", 0, 32}};
  return graph;
}

Graph plain_linear() {
  Graph graph = coded_graph(Datatype::kF32, 1024, std::monostate(), 32);
  graph.nodes = {{NodeKind::kFullyConnected, {0, 2, kNone}, {4}}};
  graph.values.erase(graph.values.begin() + 1);
  return graph;
}

std::vector<Kind> all_kinds() {
  std::vector<Kind> kinds;
  for (int code = 1; code <= static_cast<int>(NodeKind::kCos); ++code) {
    const NodeInfo& info = *find_node_info(static_cast<NodeKind>(code));
    if (info.form == Form::kAbsent || info.form == Form::kFullyConnected) continue;
    Graph graph = graph_of(info);
    Node& node = graph.nodes[0];
    if (info.form == Form::kFactor || info.form == Form::kPad) node.factors = {0.5F};
    if (info.may_clamp) node.output_range = {{-1, 1}};
    kinds.push_back({std::string(info.name), std::move(graph)});
  }
  kinds.push_back({"FullyConnected_fp32", plain_linear()});
  kinds.push_back(
      {"FullyConnected_qcint8", coded_graph(Datatype::kQCInt8, 256, PerChannel{0, 2, 8}, 32)});
  kinds.push_back(
      {"FullyConnected_qcint4", coded_graph(Datatype::kQCInt4, 128, PerChannel{0, 2, 8}, 32)});
  kinds.push_back({"FullyConnected_qbint4",
                   coded_graph(Datatype::kQBInt4, 128, PerChannelGroup{0, 32, 2, 8}, 16)});
  return kinds;
}

// Makes a program whose only instruction passes its inputs to the graph.
Bytes program_of(const Graph& graph) {
  pte::Program program;
  pte::Method& method = program.methods.emplace_back();
  method.name = "forward";
  method.delegates = {{std::string(kBackend), 0}};
  pte::DelegateCall call;
  uint64_t memory = 0;
  for (uint32_t external = 0; external < graph.num_externals; ++external) {
    const Value& value = *std::ranges::find(graph.values, external, &Value::external);
    const std::vector<int32_t> sizes(value.dims.begin(), value.dims.end());
    const auto index = static_cast<int32_t>(method.values.size());
    method.values.push_back(pte::planned(sizes, memory));
    memory += (*value_bytes(value) + 79) / 16 * 16;  // with 64 bytes to spare
    (value.is_input ? method.inputs : method.outputs).push_back(index);
    call.args.push_back(index);
  }
  method.instructions = {call};
  method.memory_bytes = {0, memory};
  const Bytes blob = write_blob(graph).value();
  pte::DataSizes sizes;
  sizes.delegates = {blob.size()};
  for (size_t i = 1; i < graph.constants.size(); ++i) {
    program.named_data.push_back({graph.constants[i].key, static_cast<uint32_t>(i - 1)});
    sizes.named.push_back(graph.constants[i].bytes);
  }
  const pte::Layout layout = pte::plan_program(program, sizes).value();
  Bytes file = layout.head;
  file.resize(layout.file_bytes);
  for (const pte::Piece& piece : layout.pieces) {
    const auto at = file.begin() + static_cast<ptrdiff_t>(piece.offset);
    if (piece.kind == pte::Piece::Kind::kDelegate) {
      std::ranges::copy(blob, at);
    } else {  // scales must be positive and normal in f32 and in bf16
      std::fill_n(at, piece.size, std::byte{0x3c});
    }
  }
  return file;
}

void expect_seed(const std::string& relative, const Bytes& bytes) {
  if (std::getenv("FERRY_WRITE_SEEDS") != nullptr) {
    std::filesystem::create_directories(
        std::filesystem::path(FERRY_TESTDATA "/" + relative).parent_path());
    std::ofstream(FERRY_TESTDATA "/" + relative, std::ios::binary)
        .write(reinterpret_cast<const char*>(bytes.data()),
               static_cast<std::streamsize>(bytes.size()));
  }
  EXPECT_EQ(read_test_file(relative), bytes) << relative;
}

TEST(XnnpackKinds, EveryKindSurvivesTheWriterAndIsASeed) {
  for (const Kind& kind : all_kinds()) {
    SCOPED_TRACE(kind.name);
    const auto blob = write_blob(kind.graph);
    ASSERT_TRUE(blob) << blob.error().message;
    const auto graph = read_blob(*blob, "b");
    ASSERT_TRUE(graph) << graph.error().message;
    EXPECT_EQ(*graph, kind.graph);
    expect_seed("fuzz/xnnpack_blob/kind_" + kind.name, *blob);
    const Bytes program = program_of(kind.graph);
    const auto loaded = pte::read_program(program, "p");
    ASSERT_TRUE(loaded) << loaded.error().message;
    expect_seed("fuzz/execute/kind_" + kind.name, program);
  }
}

// If an id, a count, a dimension or an index has any other value, the reader refuses the blob or
// returns a valid graph.
TEST(XnnpackKinds, AnyWordOfABlobCanBeAnything) {
  constexpr uint32_t kWords[] = {0, 1,       2,         3,          5,          6,
                                 7, 0x10000, INT32_MAX, 0x80000000, 0xfffffffe, UINT32_MAX};
  for (const Kind& kind : all_kinds()) {
    SCOPED_TRACE(kind.name);
    const Bytes blob = write_blob(kind.graph).value();
    for (size_t at = 0; at + sizeof(uint32_t) <= blob.size(); at += sizeof(uint32_t)) {
      for (const uint32_t word : kWords) {
        Bytes changed = blob;
        std::memcpy(changed.data() + at, &word, sizeof word);
        const auto graph = read_blob(changed, "b");
        if (graph) {
          EXPECT_TRUE(validate_graph(*graph, "b"));
        }
      }
    }
  }
}

// A bias may be absent. No other third input may.
TEST(XnnpackKinds, AllInputsOfAConcatenationAreThere) {
  const Shape part = {2, 3}, whole = {6, 3};
  Graph graph = moving_graph(NodeKind::kConcatenate3, {part, part, part}, whole, {0});
  ASSERT_TRUE(validate_graph(graph, "b"));
  graph.nodes[0].inputs[2] = kNone;
  const Status status = validate_graph(graph, "b");
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().message, "b: node 0 (Concatenate3): there is no value 4294967295");
}

TEST(XnnpackKinds, APermutationMustNotReachOutside) {
  const Shape from = {2, 3, 4, 5};
  const std::vector<std::vector<int64_t>> wrong = {
      {INT32_MAX, 0, 1, 3}, {0, 1, 2, INT64_MAX}, {-1, 0, 1, 2}, {0, 0, 1, 2}, {4, 1, 2, 3}};
  for (const std::vector<int64_t>& numbers : wrong) {
    const Graph graph = moving_graph(NodeKind::kStaticTranspose, {from}, from, numbers);
    const Status status = validate_graph(graph, "b");
    ASSERT_FALSE(status);
    EXPECT_EQ(status.error().message, "b: node 0 (StaticTranspose): no permutation");
  }
}

}  // namespace
}  // namespace ferry::xnnpack::node_table_test
