// Delegates that are compiled from graphs made by hand. The expected values follow from the
// definitions of the nodes.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

#include "tests/runner/delegate/graph_runner.h"

namespace ferry::runner::delegate_test {
namespace {

using xnnpack::Datatype;
using xnnpack::NodeKind;

constexpr float kInf = std::numeric_limits<float>::infinity();

// A graph of one node whose inputs are all arguments.
struct OneNode {
  NodeKind kind;
  std::vector<Input> inputs;
  kernels::Dims shape;
  Floats want;
  std::vector<int64_t> numbers = {};
  std::vector<float> factors = {};
  std::optional<xnnpack::MinMax> range = {};
};

void PrintTo(const OneNode& node, std::ostream* out) { *out << xnnpack::node_name(node.kind); }

class Nodes : public testing::TestWithParam<OneNode> {};

TEST_P(Nodes, GiveWhatTheyAreDefinedTo) {
  const OneNode& one = GetParam();
  GraphRunner runner;
  xnnpack::Node node;
  node.kind = one.kind;
  node.output_range = one.range;
  node.numbers = one.numbers;
  node.factors = one.factors;
  for (const Input& input : one.inputs) node.inputs.push_back(runner.input(input));
  node.outputs = {runner.output(one.shape)};
  runner.graph.nodes.push_back(node);
  for (int round = 0; round < 2; ++round) {
    const auto outputs = runner.run();
    ASSERT_TRUE(outputs) << outputs.error().message;
    EXPECT_EQ(outputs->at(0).sizes, one.shape);
    expect_near(outputs->at(0).values, one.want);
  }
}

float elu(float x, float alpha) { return x < 0 ? alpha * std::expm1(x) : x; }

INSTANTIATE_TEST_SUITE_P(
    All, Nodes,
    testing::Values(
        OneNode{
            NodeKind::kAdd, {{{2, 2}, {1, 2, 3, 4}}, {{2}, {10, 20}}}, {2, 2}, {11, 22, 13, 24}},
        OneNode{NodeKind::kAdd,
                {{{2}, {1, 2}}, {{2}, {10, -20}}},
                {2},
                {10, 0},
                {},
                {},
                xnnpack::MinMax{0, 10}},
        OneNode{
            NodeKind::kSubtract, {{{2, 1}, {1, 2}}, {{2}, {10, 20}}}, {2, 2}, {-9, -19, -8, -18}},
        OneNode{NodeKind::kMultiply,
                {{{2}, {3, 4}}, {{2}, {5, 6}}},
                {2},
                {15, 20},
                {},
                {},
                xnnpack::MinMax{-kInf, 20}},
        OneNode{NodeKind::kDiv, {{{2}, {3, 4}}, {{}, {2}}}, {2}, {1.5, 2}},
        OneNode{NodeKind::kMinimum, {{{2}, {3, 4}}, {{2}, {5, 1}}}, {2}, {3, 1}},
        OneNode{NodeKind::kMaximum, {{{2}, {3, 4}}, {{2}, {5, 1}}}, {2}, {5, 4}},
        OneNode{NodeKind::kSigmoid, {{{2}, {0, 1}}}, {2}, {0.5, 0.731058579F}},
        OneNode{NodeKind::kReciprocalSquareRoot, {{{2}, {4, 16}}}, {2}, {0.5, 0.25}},
        OneNode{NodeKind::kSquareRoot, {{{2}, {4, 16}}}, {2}, {2, 4}},
        OneNode{NodeKind::kSquare, {{{2}, {-3, 4}}}, {2}, {9, 16}},
        OneNode{NodeKind::kAbs, {{{2}, {-3, 4}}}, {2}, {3, 4}},
        OneNode{NodeKind::kNegate, {{{2}, {-3, 4}}}, {2}, {3, -4}},
        OneNode{NodeKind::kExp, {{{2}, {0, 1}}}, {2}, {1, 2.718281828F}},
        OneNode{NodeKind::kLog, {{{2}, {1, 2}}}, {2}, {0, 0.693147181F}},
        OneNode{NodeKind::kTanh, {{{2}, {0, 1}}}, {2}, {0, 0.761594156F}},
        OneNode{NodeKind::kGelu, {{{2}, {1, -1}}}, {2}, {0.841344746F, -0.158655254F}},
        OneNode{NodeKind::kSin, {{{2}, {0, 1}}}, {2}, {0, 0.841470985F}},
        OneNode{NodeKind::kCos, {{{2}, {0, 1}}}, {2}, {1, 0.540302306F}},
        OneNode{NodeKind::kFloor, {{{2}, {-1.5, 1.5}}}, {2}, {-2, 1}},
        OneNode{NodeKind::kCeiling, {{{2}, {-1.5, 1.5}}}, {2}, {-1, 2}},
        OneNode{NodeKind::kClamp,
                {{{3}, {-1.5, 0.5, 7}}},
                {3},
                {0, 0.5, 6},
                {},
                {},
                xnnpack::MinMax{0, 6}},
        OneNode{NodeKind::kHardswish, {{{4}, {-4, -1, 1, 5}}}, {4}, {0, -1.0F / 3, 2.0F / 3, 5}},
        OneNode{NodeKind::kLeakyRelu, {{{2}, {-4, 3}}}, {2}, {-1, 3}, {}, {0.25}},
        OneNode{NodeKind::kElu, {{{2}, {-1, 3}}}, {2}, {elu(-1, 2), 3}, {}, {2}},
        OneNode{NodeKind::kSoftmax, {{{2, 2}, {0, 0, 1, 1}}}, {2, 2}, {0.5, 0.5, 0.5, 0.5}},
        OneNode{NodeKind::kStaticReshape,
                {{{2, 3}, {1, 2, 3, 4, 5, 6}}},
                {1, 3, 2},
                {1, 2, 3, 4, 5, 6},
                {1, 0, 2}},
        OneNode{NodeKind::kStaticTranspose,
                {{{2, 3}, {1, 2, 3, 4, 5, 6}}},
                {3, 2},
                {1, 4, 2, 5, 3, 6},
                {1, 0}},
        OneNode{NodeKind::kStaticSlice,
                {{{2, 3}, {1, 2, 3, 4, 5, 6}}},
                {2, 2},
                {2, 3, 5, 6},
                {0, 1, 0, 2}},
        OneNode{NodeKind::kConcatenate2,
                {{{2, 1}, {1, 2}}, {{2, 2}, {3, 4, 5, 6}}},
                {2, 3},
                {1, 3, 4, 2, 5, 6},
                {1}},
        OneNode{
            NodeKind::kConcatenate3, {{{1}, {1}}, {{1}, {2}}, {{1}, {3}}}, {3}, {1, 2, 3}, {-1}},
        OneNode{NodeKind::kConcatenate4,
                {{{1}, {1}}, {{1}, {2}}, {{1}, {3}}, {{1}, {4}}},
                {4},
                {1, 2, 3, 4},
                {0}},
        OneNode{NodeKind::kConcatenate5,
                {{{1}, {1}}, {{1}, {2}}, {{1}, {3}}, {{1}, {4}}, {{1}, {5}}},
                {5},
                {1, 2, 3, 4, 5},
                {0}},
        OneNode{NodeKind::kBatchMatrixMultiply,
                {{{2, 1, 2}, {1, 2, 3, 4}}, {{2, 2, 1}, {5, 6, 7, 8}}},
                {2, 1, 1},
                {17, 53}},
        OneNode{NodeKind::kCopy, {{{2}, {1, 2}}}, {2}, {1, 2}},
        OneNode{NodeKind::kConvert, {{{2}, {1, 2}}}, {2}, {1, 2}}));

// -- shapes and memory

TEST(Delegate, ShapesFollowFromThoseOfTheInputs) {
  GraphRunner runner;
  const uint32_t x = runner.dynamic_input({4, 2});
  const uint32_t sum = runner.inner({4, 2}), twice = runner.inner({8, 2});
  runner.add(NodeKind::kAdd, {x, x}, sum);
  runner.add(NodeKind::kConcatenate2, {sum, x}, twice).numbers = {0};
  runner.add(NodeKind::kSquare, {twice}, runner.dynamic_output({8, 2}));
  ASSERT_TRUE(runner.compile()) << runner.compile().error().message;
  for (const int64_t rows : {3, 1, 4, 0, 1}) {
    Floats values;
    for (int64_t i = 0; i < 2 * rows; ++i) values.push_back(static_cast<float>(i));
    runner.set(0, {{rows, 2}, values});
    const auto outputs = runner.run();
    ASSERT_TRUE(outputs) << outputs.error().message;
    EXPECT_EQ(outputs->at(0).sizes, (kernels::Dims{2 * rows, 2}));
    Floats want;
    for (float value : values) want.push_back(4 * value * value);
    for (float value : values) want.push_back(value * value);
    EXPECT_EQ(outputs->at(0).values, want);
  }
}

// Images [batch, channels, height, width] are [batch, height, width, channels] to the graph.
TEST(Delegate, ArgumentsWithTheirChannelsLast) {
  GraphRunner runner;
  runner.order = {0, 2, 3, 1};
  const uint32_t x = runner.dynamic_input({1, 2, 1, 3});
  runner.add(NodeKind::kConcatenate2, {x, x}, runner.dynamic_output({1, 4, 1, 3})).numbers = {3};
  for (const int64_t width : {3, 2, 3}) {
    Floats values;
    for (int64_t i = 0; i < 2 * width; ++i) values.push_back(static_cast<float>(i));
    Floats want = values;
    want.insert(want.end(), values.begin(), values.end());
    runner.set(0, {{1, 2, 1, width}, values});
    const auto outputs = runner.run();
    ASSERT_TRUE(outputs) << outputs.error().message;
    EXPECT_EQ(outputs->at(0).sizes, (kernels::Dims{1, 4, 1, width}));
    EXPECT_EQ(outputs->at(0).values, want);
  }
}

// Numbers that codes stand for are made one after the other, from memory that may be the same.
TEST(Delegate, ConstantsOfCodesAreKeptApart) {
  GraphRunner runner;
  const auto constant = [&](uint32_t four_codes) {
    const uint32_t id = runner.constant({{64}, Floats(16, std::bit_cast<float>(four_codes))});
    runner.graph.values.back().datatype = xnnpack::Datatype::kQInt8;
    runner.graph.values.back().quantization = xnnpack::PerTensor{0.5F, 0};
    return id;
  };
  const uint32_t x = runner.input({{64}, Floats(64, 1)});
  const uint32_t two = constant(0x04040404), three = constant(0x06060606);
  const uint32_t twice = runner.inner({64});
  runner.add(NodeKind::kMultiply, {x, two}, twice);
  runner.add(NodeKind::kMultiply, {twice, three}, runner.output({64}));
  const auto outputs = runner.run();
  ASSERT_TRUE(outputs) << outputs.error().message;
  EXPECT_EQ(outputs->at(0).values, Floats(64, 6));
}

TEST(Delegate, CopiesOfArgumentsCountAsMemory) {
  GraphRunner runner;
  runner.order = {1, 0};
  const uint32_t x = runner.input({{2, 3}, {1, 2, 3, 4, 5, 6}});
  runner.add(NodeKind::kSquare, {x}, runner.output({2, 3}));
  runner.memory_bytes = 2 * 6 * sizeof(float) - 1;
  EXPECT_FALSE(runner.run());
  runner.memory_bytes += 1;
  const auto outputs = runner.run();
  ASSERT_TRUE(outputs) << outputs.error().message;
  EXPECT_EQ(outputs->at(0).values, (Floats{1, 4, 9, 16, 25, 36}));
}

TEST(Delegate, AnOutputBeyondItsMemoryIsRefused) {
  GraphRunner runner;
  const uint32_t x = runner.dynamic_input({4});
  runner.add(NodeKind::kConcatenate2, {x, x}, runner.dynamic_output({5})).numbers = {0};
  runner.set(0, {{2}, {1, 2}});
  ASSERT_TRUE(runner.run());
  runner.set(0, {{3}, {1, 2, 3}});
  const auto outputs = runner.run();
  ASSERT_FALSE(outputs);
  EXPECT_EQ(outputs.error().message,
            "node 0 (Concatenate2): value 1 (f32[4]) has too little memory for the result's [6]");
}

TEST(Delegate, ValuesWithoutTheSameLifetimeShareMemory) {
  GraphRunner runner;
  const uint32_t x = runner.input({{64}, Floats(64, 1)});
  uint32_t last = x;
  for (int i = 0; i < 20; ++i) {
    const uint32_t next = runner.inner({64});
    runner.add(NodeKind::kAdd, {last, x}, next);
    last = next;
  }
  runner.add(NodeKind::kCopy, {last}, runner.output({64}));
  runner.memory_bytes = 2 * 64 * sizeof(float);
  const auto outputs = runner.run();
  ASSERT_TRUE(outputs) << outputs.error().message;
  EXPECT_EQ(outputs->at(0).values, Floats(64, 21));
}

// -- what is refused

TEST(Delegate, GraphsThatAreNotImplemented) {
  const auto refuse = [](const auto& change, const std::string& message) {
    GraphRunner runner;
    const uint32_t x = runner.input({{2, 2}, {1, 2, 3, 4}});
    runner.add(NodeKind::kAdd, {x, x}, runner.output({2, 2}));
    change(runner);
    const Status status = runner.compile();
    ASSERT_FALSE(status) << message;
    EXPECT_EQ(status.error().code, ErrorCode::kUnsupported);
    EXPECT_EQ(status.error().message, message);
  };
  refuse([](GraphRunner& r) { r.graph.nodes[0].kind = NodeKind::kArgMaxPooling2d; },
         "node 0 (ArgMaxPooling2d): is not supported");
  refuse([](GraphRunner& r) { r.graph.nodes[0].flags = 4; },
         "node 0 (Add): flags 0x4 is not supported");
  refuse([](GraphRunner& r) { r.graph.values[0].datatype = Datatype::kI32; },
         "graph value 0: an argument in int32 is not supported");
  refuse(
      [](GraphRunner& r) {
        const uint32_t q = r.quantised({2, 2}, 2);
        r.add(NodeKind::kConvert, {0}, q);
      },
      "node 1 (Convert): graph value 2 with rows of other than one dimension is not supported");
  refuse(
      [](GraphRunner& r) {
        const uint32_t q = r.quantised({2, 2});
        r.add(NodeKind::kConvert, {0}, q);
        r.add(NodeKind::kAbs, {q}, r.inner({2, 2}));
      },
      "node 2 (Abs): graph value 2 in qdint8 is not supported");
}

TEST(Delegate, GraphsThatAreNotConsistent) {
  const auto refuse = [](const auto& change, const std::string& message) {
    GraphRunner runner;
    const uint32_t x = runner.input({{2, 2}, {1, 2, 3, 4}});
    runner.add(NodeKind::kAdd, {x, x}, runner.output({2, 2}));
    change(runner);
    const Status status = runner.compile();
    ASSERT_FALSE(status) << message;
    EXPECT_EQ(status.error().code, ErrorCode::kBadInput);
    EXPECT_EQ(status.error().message, message);
  };
  refuse([](GraphRunner& r) { r.graph.num_externals = 3; }, "2 arguments, but the graph has 3");
  refuse([](GraphRunner& r) { r.graph.values[1].id = 0; }, "graph value 0: is there twice");
  refuse([](GraphRunner& r) { r.graph.values[1].is_output = false; },
         "graph value 1: argument 1 is no input or output");
  refuse([](GraphRunner& r) { r.graph.values[0].dims = {4}; },
         "graph value 0: argument 0 has 2 dimensions, expected 1");
  refuse([](GraphRunner& r) { r.graph.nodes.clear(); }, "graph value 1: no node makes argument 1");
  refuse([](GraphRunner& r) { r.graph.nodes[0].inputs[1] = 9; },
         "node 0 (Add): there is no graph value 9");
  refuse([](GraphRunner& r) { r.graph.nodes[0].inputs[1] = 1; },
         "node 0 (Add): graph value 1 is used before it is made");
  refuse([](GraphRunner& r) { r.graph.nodes[0].outputs[0] = 0; },
         "node 0 (Add): graph value 0 cannot be made here");
  refuse([](GraphRunner& r) { r.graph.nodes[0].inputs.pop_back(); },
         "node 0 (Add): 1 inputs, expected 2");
  refuse(
      [](GraphRunner& r) {
        r.graph.nodes[0].output_range = xnnpack::MinMax{2, 1};
      },
      "node 0 (Add): limits from 2 to 1");
  refuse([](GraphRunner& r) { r.add(NodeKind::kStaticReshape, {0}, r.inner({3})).numbers = {3}; },
         "node 1 (StaticReshape): [2, 2] cannot have the shape [3]");
  refuse(
      [](GraphRunner& r) {
        r.add(NodeKind::kStaticTranspose, {0}, r.inner({2, 2})).numbers = {1, 1};
      },
      "node 1 (StaticTranspose): [1, 1] is no permutation");
  refuse(
      [](GraphRunner& r) {
        r.add(NodeKind::kStaticSlice, {0}, r.inner({2, 2})).numbers = {0, 1, 2, 2};
      },
      "node 1 (StaticSlice): 2 elements from 1 are not inside of dimension 1 of [2, 2]");
  refuse(
      [](GraphRunner& r) {
        const std::vector<std::byte> codes(15), scales(2);
        const uint32_t w = r.coded({1, 32}, Datatype::kQBInt4, 32, codes, scales);
        r.add(NodeKind::kFullyConnected, {0, w}, r.inner({2, 1}));
      },
      "node 1 (FullyConnected): the filter has 15 bytes of data, expected 16");
  refuse(
      [](GraphRunner& r) {
        const std::vector<std::byte> codes(32), scales(7);
        const uint32_t w = r.coded({2, 16}, Datatype::kQCInt8, 0, codes, scales);
        r.add(NodeKind::kFullyConnected, {0, w}, r.inner({2, 2}));
      },
      "node 1 (FullyConnected): the filter has 7 bytes of scales, expected 8");
  refuse(
      [](GraphRunner& r) {
        const uint32_t w = r.constant({{3, 3}, Floats(9)});
        r.add(NodeKind::kFullyConnected, {0, w}, r.inner({2, 3}));
      },
      "node 1 (FullyConnected): shape mismatch: [2, 2] and [3, 3]");
  refuse(
      [](GraphRunner& r) {
        const uint32_t w = r.constant({{3, 2}, Floats(6)});
        const uint32_t bias = r.constant({{2}, Floats(2)});
        r.add(NodeKind::kFullyConnected, {0, w, bias}, r.inner({2, 3}));
      },
      "node 1 (FullyConnected): a bias of 2 values for 3 rows");
}

}  // namespace
}  // namespace ferry::runner::delegate_test
