// Each way in which a well-formed FlatBuffer can be invalid is refused, and the message names the
// place: graphs (validate_graph), their constants (check_constants), and programs that call them
// (check_calls).
#include <cstring>
#include <functional>
#include <limits>

#include "formats/ptd/ptd.h"
#include "formats/xnnpack/calls.h"
#include "formats/xnnpack/reader.h"
#include "formats/xnnpack/validate.h"
#include "formats/xnnpack/writer.h"
#include "tests/formats/xnnpack_graphs.h"

namespace ferry::xnnpack::validate_test {
namespace {

using Dims = std::vector<uint32_t>;

struct Lie {
  const char* message;
  std::function<void(Graph&)> tell;
};

void expect_refused(const Graph& graph, const char* message) {
  SCOPED_TRACE(message);
  const Status status = validate_graph(graph, "x");
  ASSERT_FALSE(status);
  EXPECT_NE(status.error().message.find(message), std::string::npos) << status.error().message;
  EXPECT_EQ(write_blob(graph).error().code, ErrorCode::kInternal);
}

TEST(XnnpackValidate, RefusesLiesAboutValues) {
  ASSERT_TRUE(validate_graph(linear_graph(), "x"));
  const Lie kLies[] = {
      {"two values have one id", [](Graph& g) { g.values[3].id = 0; }},
      {"value 4294967295: an id", [](Graph& g) { g.values[0].id = kNone; }},
      {"value 0: qpint8", [](Graph& g) { g.values[0].datatype = Datatype::kQPInt8; }},
      {"value 0: datatype 99", [](Graph& g) { g.values[0].datatype = Datatype{99}; }},
      {"value 0: qint8 with a quantisation",
       [](Graph& g) { g.values[0].datatype = Datatype::kQInt8; }},
      {"value 3: fp32 with a quantisation",
       [](Graph& g) { g.values[3].quantization = PerToken{1}; }},
      {"value 0: rank 7", [](Graph& g) { g.values[0].dims = Dims(7, 1); }},
      {"value 0: a dimension of 0", [](Graph& g) { g.values[0].dims[1] = 0; }},
      {"value 0: its size overflows", [](Graph& g) { g.values[0].dims = Dims(6, UINT32_MAX); }},
      {"value 2: rows of an odd number", [](Graph& g) { g.values[2].dims[1] = 63; }},
      {"value 2: groups of 48",
       [](Graph& g) { std::get<PerChannelGroup>(g.values[2].quantization).group_size = 48; }},
      {"value 2: groups of 0",
       [](Graph& g) { std::get<PerChannelGroup>(g.values[2].quantization).group_size = 0; }},
      {"value 2: rows of 64 in groups of 96",
       [](Graph& g) { std::get<PerChannelGroup>(g.values[2].quantization).group_size = 96; }},
      {"value 2: groups of a value that is no matrix",
       [](Graph& g) { std::get<PerChannelGroup>(g.values[2].quantization).channel_dim = 1; }},
      {"value 2: 191 scales, expected 192",
       [](Graph& g) { std::get<PerChannelGroup>(g.values[2].quantization).num_scales = 191; }},
      {"value 2: scales in constant 4 of 4",
       [](Graph& g) { std::get<PerChannelGroup>(g.values[2].quantization).scales = 4; }},
      {"value 2: scales of 384 bytes, constant 2 has 383",
       [](Graph& g) { g.constants[2].bytes = 383; }},
      {"value 2: data of 3072 bytes, constant 1 has 6144",
       [](Graph& g) { g.constants[1].bytes = 6144; }},
      {"value 2: data in constant 9 of 4", [](Graph& g) { g.values[2].constant = 9; }},
      {"value 1: quantised at run time, but", [](Graph& g) { g.values[1].constant = 1; }},
      {"value 1: 4 dimensions of rows, of 3",
       [](Graph& g) { g.values[1].quantization = PerToken{4}; }},
      {"value 0: input and output at once", [](Graph& g) { g.values[0].is_output = true; }},
      {"value 0: an external id and flags", [](Graph& g) { g.values[0].is_input = false; }},
      {"value 3: a constant is an argument",
       [](Graph& g) {
         g.values[3].external = 2;
         g.values[3].is_input = true;
       }},
      {"argument 2 is no value", [](Graph& g) { g.num_externals = 3; }},
      {"value 4: argument 1 of 1", [](Graph& g) { g.num_externals = 1; }},
      {"value 4: argument 0 again", [](Graph& g) { g.values[4].external = 0; }},
      {"argument 1 is an input after an output",
       [](Graph& g) { std::swap(g.values[0].external, g.values[4].external); }},
      {"4097 arguments", [](Graph& g) { g.num_externals = 4097; }},
      {"constant 0 is no placeholder", [](Graph& g) { g.constants.erase(g.constants.begin()); }},
  };
  for (const Lie& lie : kLies) {
    Graph graph = linear_graph();
    lie.tell(graph);
    expect_refused(graph, lie.message);
  }
}

TEST(XnnpackValidate, RefusesLiesAboutLinearLayers) {
  const Lie kLies[] = {
      {"node 1 (FullyConnected): there is no value 9", [](Graph& g) { g.nodes[1].inputs[0] = 9; }},
      {"node 1 (FullyConnected): there is no value 9", [](Graph& g) { g.nodes[1].outputs = {9}; }},
      {"node 1 (FullyConnected): there is no value 4294967295",
       [](Graph& g) { g.nodes[1].inputs[1] = kNone; }},
      {"node 0 (FullyConnected): uses value 1 before it is made",
       [](Graph& g) { std::swap(g.nodes[0], g.nodes[1]); }},
      {"node 2 (FullyConnected): makes value 4 again",
       [](Graph& g) { g.nodes.push_back(g.nodes[1]); }},
      {"node 0 (Convert): makes value 3 again", [](Graph& g) { g.nodes[0].outputs = {3}; }},
      {"value 4: nothing makes it", [](Graph& g) { g.nodes.pop_back(); }},
      {"node 0 (Convert): 2 inputs and 1 outputs",
       [](Graph& g) {
         g.nodes[0].inputs = {0, 0};
       }},
      {"node 0 (Convert): flags 1", [](Graph& g) { g.nodes[0].flags = 1; }},
      {"node 1 (FullyConnected): flags 2", [](Graph& g) { g.nodes[1].flags = 2; }},
      {"node 1 (FullyConnected): transposed codes", [](Graph& g) { g.nodes[1].flags = 1; }},
      {"node 0 (ArgMaxPooling2d): unsupported node kind",
       [](Graph& g) { g.nodes[0].kind = NodeKind::kArgMaxPooling2d; }},
      {"node 0 (kind 99): unsupported node kind", [](Graph& g) { g.nodes[0].kind = NodeKind{99}; }},
      {"node 1 (FullyConnected): a filter that is no constant",
       [](Graph& g) { g.nodes[1].inputs[1] = 0; }},
      {"node 1 (FullyConnected): qdint8 by fp32 into fp32",
       [](Graph& g) { g.nodes[1].inputs[1] = 3; }},
      {"node 1 (FullyConnected): fp32 by qbint4 into fp32",
       [](Graph& g) { g.nodes[1].inputs[0] = 0; }},
      {"node 1 (FullyConnected): rows of 2 dimensions",
       [](Graph& g) { g.values[1].quantization = PerToken{2}; }},
      {"node 1 (FullyConnected): rows of [1, 8, 32] by a filter of [96, 64]",
       [](Graph& g) { g.values[0].dims[2] = g.values[1].dims[2] = 32; }},
      {"node 1 (FullyConnected): its output is [1, 8, 96], stated [1, 8, 95]",
       [](Graph& g) { g.values[4].dims[2] = 95; }},
      {"node 1 (FullyConnected): a bias of fp32 [48, 2] for 96 rows",
       [](Graph& g) {
         g.values[3].dims = {48, 2};
       }},
      {"node 1 (FullyConnected): a bias that is no constant",
       [](Graph& g) { g.nodes[1].inputs[2] = 0; }},
      {"node 1 (FullyConnected): a range of its output from 2 to 1",
       [](Graph& g) {
         g.nodes[1].output_range = MinMax{2, 1};
       }},
      {"node 0 (Convert): a range of its output",
       [](Graph& g) {
         g.nodes[0].output_range = MinMax{0, 1};
       }},
      {"node 0 (Convert): its output is [1, 8, 64], stated [1, 4, 64]",
       [](Graph& g) { g.values[1].dims[1] = 4; }},
      {"node 0 (Convert): its number of factors", [](Graph& g) { g.nodes[0].factors = {1}; }},
      {"node 0 (Convert): 1 numbers, expected 0", [](Graph& g) { g.nodes[0].numbers = {1}; }},
  };
  for (const Lie& lie : kLies) {
    Graph graph = linear_graph();
    lie.tell(graph);
    expect_refused(graph, lie.message);
  }
}

struct NodeCase {
  NodeKind kind;
  std::vector<Dims> from;
  Dims to;
  std::vector<int64_t> numbers = {};
  std::vector<float> factors = {};
};

Graph graph_of(const NodeCase& c) {
  Graph graph = node_graph(c.kind, c.from, c.to);
  graph.nodes[0].numbers = c.numbers;
  graph.nodes[0].factors = c.factors;
  return graph;
}

TEST(XnnpackValidate, EveryFormOfNodeSurvivesTheWriter) {
  const NodeCase kCases[] = {
      {NodeKind::kAdd, {{2, 1, 4}, {3, 1}}, {2, 3, 4}},
      {NodeKind::kMultiply, {{}, {}}, {}},
      {NodeKind::kSoftmax, {{2, 3}}, {2, 3}},
      {NodeKind::kClamp, {{2, 3}}, {2, 3}},
      {NodeKind::kLeakyRelu, {{5}}, {5}, {}, {0.125F}},
      {NodeKind::kElu, {{5}}, {5}, {}, {1.5F}},
      {NodeKind::kStaticTranspose, {{2, 3, 4}}, {4, 2, 3}, {2, 0, 1}},
      {NodeKind::kStaticReshape, {{2, 3, 4}}, {6, 4}, {6, 4}},
      {NodeKind::kStaticReshape, {{2, 3, 4}}, {2, 12}, {2, 0}},
      {NodeKind::kStaticReshape, {{1, 1}}, {}, {}},
      {NodeKind::kStaticSlice, {{4, 5}}, {2, 5}, {1, 0, 2, 0}},
      {NodeKind::kStaticConstantPad, {{4, 5}}, {4, 8}, {0, 1, 0, 2}, {-1.0F}},
      {NodeKind::kConcatenate2, {{2, 3}, {2, 4}}, {2, 7}, {1}},
      {NodeKind::kConcatenate5, {{1}, {2}, {3}, {4}, {5}}, {15}, {0}},
      {NodeKind::kBatchMatrixMultiply, {{2, 1, 3, 4}, {1, 5, 4, 6}}, {2, 5, 3, 6}},
      {NodeKind::kCopy, {{2}}, {2}},
      {NodeKind::kCos, {{2}}, {2}},
  };
  for (const NodeCase& c : kCases) {
    SCOPED_TRACE(node_name(c.kind));
    Graph graph = graph_of(c);
    if (c.kind == NodeKind::kClamp) graph.nodes[0].output_range = MinMax{-1, 6};
    graph.nodes[0].debug_handle = 7;
    const auto blob = write_blob(graph);
    ASSERT_TRUE(blob) << blob.error().message;
    EXPECT_EQ(read_blob(*blob, "x").value(), graph);
  }
}

TEST(XnnpackValidate, RefusesNodesWithWrongShapesAndNumbers) {
  const std::pair<const char*, NodeCase> kCases[] = {
      {"(Add): [2, 3] and [2]", {NodeKind::kAdd, {{2, 3}, {2}}, {2, 3}}},
      {"(Add): its output is [2, 3], stated [3]", {NodeKind::kAdd, {{2, 3}, {3}}, {3}}},
      {"(Softmax): of a scalar", {NodeKind::kSoftmax, {{}}, {}}},
      {"(Elu): factor nan",
       {NodeKind::kElu, {{5}}, {5}, {}, {std::numeric_limits<float>::quiet_NaN()}}},
      {"(Elu): its number of factors", {NodeKind::kElu, {{5}}, {5}}},
      {"(StaticTranspose): no permutation", {NodeKind::kStaticTranspose, {{2, 3}}, {3, 3}, {1, 1}}},
      {"(StaticTranspose): 1 numbers", {NodeKind::kStaticTranspose, {{2, 3}}, {3, 2}, {1}}},
      {"(StaticReshape): [2, 3] into [4, 2]", {NodeKind::kStaticReshape, {{2, 3}}, {4, 2}, {4, 2}}},
      {"(StaticReshape): [2, 3] into [4, 0]", {NodeKind::kStaticReshape, {{2, 3}}, {4, 2}, {4, 0}}},
      {"(StaticReshape): two dimensions", {NodeKind::kStaticReshape, {{2, 3}}, {2, 3}, {0, 0}}},
      {"(StaticReshape): dimension -6", {NodeKind::kStaticReshape, {{2, 3}}, {6}, {-6}}},
      {"(StaticSlice): 3 elements at 2 of 4", {NodeKind::kStaticSlice, {{4}}, {3}, {2, 3}}},
      {"(StaticSlice): 0 elements at 1 of 4", {NodeKind::kStaticSlice, {{4}}, {3}, {1, 0}}},
      {"(StaticSlice): -1 elements", {NodeKind::kStaticSlice, {{4}}, {3}, {0, -1}}},
      {"(StaticConstantPad): its output overflows",
       {NodeKind::kStaticConstantPad, {{4}}, {3}, {UINT32_MAX, 0}, {0}}},
      {"(Concatenate2): axis 2 of rank 2",
       {NodeKind::kConcatenate2, {{2, 3}, {2, 4}}, {2, 7}, {2}}},
      {"(Concatenate2): shapes that differ",
       {NodeKind::kConcatenate2, {{2, 3}, {3, 4}}, {2, 7}, {1}}},
      {"(Concatenate2): shapes that differ", {NodeKind::kConcatenate2, {{2, 3}, {2}}, {2, 7}, {1}}},
      {"(BatchMatrixMultiply): [2, 3] by [2, 3]",
       {NodeKind::kBatchMatrixMultiply, {{2, 3}, {2, 3}}, {2, 3}}},
      {"(BatchMatrixMultiply): [3] by [3]", {NodeKind::kBatchMatrixMultiply, {{3}, {3}}, {}}},
  };
  for (const auto& [message, c] : kCases) expect_refused(graph_of(c), message);
}

// -- constants

struct Named {
  std::vector<std::byte> codes = std::vector<std::byte>(3072);
  std::vector<std::byte> scales = std::vector<std::byte>(384, std::byte{0x3d});
  std::vector<std::byte> bias = std::vector<std::byte>(384);

  Status check(const Graph& graph = linear_graph()) const {
    const auto lookup = [&](std::string_view key) -> std::optional<std::span<const std::byte>> {
      if (key == "w") return codes;
      if (key == "w.scales") return scales;
      if (key == "b") return bias;
      return std::nullopt;
    };
    return check_constants(graph, {}, lookup, "x");
  }
};

TEST(XnnpackConstants, AreThereAndHaveTheirSizes) {
  EXPECT_TRUE(Named().check());
  Graph graph = linear_graph();
  graph.constants[1].key = "v";
  EXPECT_EQ(Named().check(graph).error().message, "x: named data 'v' is nowhere");
  Named named;
  named.codes.pop_back();
  EXPECT_EQ(named.check().error().message, "x: 3071 bytes, expected 3072 (named data 'w')");
}

TEST(XnnpackConstants, ScalesArePositiveAndNormal) {
  const uint16_t kWrong[] = {0x0000, 0x0001, 0x007f, 0x7f80, 0x7fc0, 0x8000, 0xbd3d, 0xffff};
  for (const uint16_t scale : kWrong) {
    Named named;
    std::memcpy(named.scales.data() + 2 * 17, &scale, 2);
    EXPECT_EQ(named.check().error().message,
              "x: scale 17 is not positive and normal (named data 'w.scales')");
  }
  for (const uint16_t scale : {uint16_t{0x0080}, uint16_t{0x7f7f}}) {
    Named named;
    std::memcpy(named.scales.data() + 2 * 17, &scale, 2);
    EXPECT_TRUE(named.check());
  }
}

TEST(XnnpackConstants, OfficialOnesAreInTheProgramOrBesideIt) {
  const OfficialProgram inside("ffn_8da4w_g32");
  const auto graphs = read_blobs(inside.loaded, "x").value();
  const auto in_program = [&](std::string_view key) -> std::optional<std::span<const std::byte>> {
    for (const pte::NamedData& named : inside.loaded.program.named_data) {
      if (named.key == key) return inside.loaded.data.named[named.data];
    }
    return std::nullopt;
  };
  for (const auto& graph : graphs) EXPECT_TRUE(check_constants(*graph, {}, in_program, "x"));

  const OfficialProgram outside("linear_8da8w_pc_ext");
  const auto file = read_test_file("xnnpack/linear_8da8w_pc_ext.ptd");
  const auto data = ptd::read_data_file(file, "x").value();
  const auto beside = [&](std::string_view key) -> std::optional<std::span<const std::byte>> {
    for (const ptd::NamedTensor& tensor : data.tensors) {
      const ptd::Segment& segment = data.segments[tensor.segment];
      if (tensor.key == key) return std::span(file).subspan(segment.offset, segment.size);
    }
    return std::nullopt;
  };
  const auto graph = read_blobs(outside.loaded, "x").value()[0];
  EXPECT_TRUE(check_constants(*graph, {}, beside, "x"));
  EXPECT_FALSE(check_constants(*graph, {}, in_program, "x"));
}

// -- calls

// A program that calls linear_graph().
struct Caller {
  Caller() {
    method.name = "forward";
    method.values = {pte::planned({1, 8, 64}, 0), pte::planned({1, 8, 96}, 2048), int64_t{3}};
    method.inputs = {0};
    method.outputs = {1};
    method.delegates = {{std::string(kBackend), 0}};
    method.instructions = {pte::DelegateCall{0, {0, 1}}};
    method.memory_bytes = {0, 8192};
  }
  pte::Tensor& tensor(size_t i) { return std::get<pte::Tensor>(method.values[i]); }
  std::vector<int32_t>& args() { return std::get<pte::DelegateCall>(method.instructions[0]).args; }
  std::string message() const {
    const Status status = check_calls(method, {linear_graph()}, "x.pte");
    return status ? "" : status.error().message;
  }
  pte::Method method;
};

TEST(XnnpackCalls, OfficialProgramsPass) {
  for (const char* name : {"linear_8da4w_g32_bias", "linear_pt2e_qc4w", "ffn_8da4w_g32",
                           "llama_8da4w_e4_ext", "linear_inline"}) {
    const OfficialProgram program(name);
    const auto graphs = read_blobs(program.loaded, name);
    ASSERT_TRUE(graphs) << graphs.error().message;
    for (const pte::Method& method : program.loaded.program.methods) {
      const Status status = check_calls(method, *graphs, name);
      EXPECT_TRUE(status) << status.error().message;
    }
  }
}

TEST(XnnpackCalls, RefusesCallsThatDoNotFitTheirBlob) {
  const std::pair<const char*, std::function<void(Caller&)>> kCases[] = {
      {"3 arguments, its blob takes 2",
       [](Caller& c) {
         c.args() = {0, 1, 1};
       }},
      {"1 arguments, its blob takes 2", [](Caller& c) { c.args() = {0}; }},
      {"argument 0 is no tensor", [](Caller& c) { c.args()[0] = 2; }},
      {"argument 0 is f16, its blob has fp32", [](Caller& c) { c.tensor(0).dtype = DType::kF16; }},
      {"argument 0 is [1, 64, 8], its blob has [1, 8, 64]",
       [](Caller& c) {
         c.tensor(0).dim_order = {0, 2, 1};
       }},
      {"argument 0 is [1, 7, 64], its blob has [1, 8, 64]",
       [](Caller& c) { c.tensor(0).sizes[1] = 7; }},
      {"argument 1 is [1, 8], its blob has [1, 8, 96]",
       [](Caller& c) { c.tensor(1).sizes.pop_back(); }},
      {"arguments 0 and 1 share memory", [](Caller& c) { c.tensor(1).allocation->offset = 2047; }},
      {"writes argument 1, which is not its to write",
       [](Caller& c) {
         c.tensor(1).allocation.reset();
         c.tensor(1).external = true;
       }},
      {"writes argument 1, which is not its to write",
       [](Caller& c) {
         c.tensor(1).allocation.reset();
         c.method.outputs = {};
       }},
      {"writes argument 1, which is not its to write",
       [](Caller& c) {
         c.tensor(1).allocation.reset();
         c.method.operators = {{"executorch_prim::et_view", "default"}};
         c.method.instructions.push_back(pte::KernelCall{0, {0, 2, 1}});
       }},
      {"writes argument 1, which is not its to write",
       [](Caller& c) {
         c.tensor(1).allocation.reset();
         c.method.operators = {{"no::such", ""}};
         c.method.instructions.push_back(pte::KernelCall{0, {1, 2}});
       }},
  };
  EXPECT_EQ(Caller().message(), "");
  for (const auto& [message, tell] : kCases) {
    Caller caller;
    tell(caller);
    EXPECT_EQ(caller.message(),
              std::string("x.pte: method 'forward': instruction 0 (delegate): ") + message);
  }
  Caller callers;
  callers.tensor(1).allocation.reset();
  EXPECT_EQ(callers.message(), "");
  callers.method.operators = {{"aten::neg", "out"}};  // reads value 1
  callers.method.instructions.push_back(pte::KernelCall{0, {1, 0, 0}});
  EXPECT_EQ(callers.message(), "");
  Caller other;
  other.args() = {};
  other.method.delegates[0].backend = "OtherBackend";
  EXPECT_EQ(other.message(), "");
}

}  // namespace
}  // namespace ferry::xnnpack::validate_test
