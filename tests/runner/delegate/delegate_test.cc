// Delegates that are compiled from graphs made by hand. The expected values follow from the
// definitions of the nodes.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "tests/runner/delegate/graph_runner.h"

namespace ferry::runner::delegate_test {
namespace {

using xnnpack::Datatype;
using xnnpack::NodeKind;

constexpr float kInf = std::numeric_limits<float>::infinity();

using Floats = std::vector<float>;

void expect_near(const Floats& got, const Floats& want, float bound = 1e-6F) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) {
    EXPECT_NEAR(got[i], want[i], bound * std::max(1.0F, std::abs(want[i]))) << i;
  }
}

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

// -- FullyConnected

// Weights of a FullyConnected as they are stored, and as numbers.
struct Weights {
  Datatype datatype;
  int64_t rows, columns;
  uint32_t group = 0;
};

class Linears : public testing::TestWithParam<Weights> {
 protected:
  std::mt19937 random_{1};
  float number(float largest) {
    return std::uniform_real_distribution<float>(-largest, largest)(random_);
  }
  Floats numbers(size_t count, float largest) {
    Floats values(count);
    for (float& value : values) value = number(largest);
    return values;
  }

  // Returns the value of a matrix with random codes. Appends its numbers to `numbers`.
  uint32_t filter(GraphRunner& runner, Floats& numbers) {
    const Weights& w = GetParam();
    const int64_t group = w.group == 0 ? w.columns : w.group;
    std::vector<std::byte> codes, scales;
    Floats scale;
    for (int64_t i = 0; i < w.rows * w.columns / group; ++i) {
      scale.push_back(bf16_to_f32(f32_to_bf16(0.01F + std::abs(number(0.02F)))));
      append(scales, scale.back(), w.group > 0);
    }
    const bool four = w.datatype != Datatype::kQCInt8;
    for (int64_t i = 0; i < w.rows * w.columns; ++i) {
      const int code =
          std::uniform_int_distribution<int>(four ? -8 : -128, four ? 7 : 127)(random_);
      numbers.push_back(static_cast<float>(code) * scale[static_cast<size_t>(i / group)]);
      if (!four) {
        codes.push_back(static_cast<std::byte>(code));
      } else if (i % 2 == 0) {
        codes.push_back(static_cast<std::byte>(code + 8));
      } else {
        codes.back() |= static_cast<std::byte>((code + 8) << 4);
      }
    }
    return runner.coded({w.rows, w.columns}, w.datatype, w.group, codes, scales);
  }

  static void append(std::vector<std::byte>& bytes, float scale, bool bf16) {
    const uint16_t half = f32_to_bf16(scale);
    const auto* from = bf16 ? reinterpret_cast<const std::byte*>(&half)
                            : reinterpret_cast<const std::byte*>(&scale);
    bytes.insert(bytes.end(), from, from + (bf16 ? 2 : 4));
  }
};

// Computes the product in double, from rounded activations if they are quantised.
Floats product(const Floats& x, const Floats& w, int64_t columns, bool quantised) {
  const size_t k = static_cast<size_t>(columns);
  Floats out;
  for (size_t row = 0; row < x.size(); row += k) {
    Floats values(x.begin() + static_cast<ptrdiff_t>(row),
                  x.begin() + static_cast<ptrdiff_t>(row + k));
    if (quantised) {
      std::vector<int8_t> codes(k);
      const kernels::QuantizedRow q = kernels::quantize_row(values, codes);
      for (size_t i = 0; i < k; ++i) {
        values[i] = static_cast<float>(codes[i] - q.zero_point) * q.inverse_scale;
      }
    }
    for (size_t n = 0; n < w.size(); n += k) {
      double sum = 0;
      for (size_t i = 0; i < k; ++i) sum += static_cast<double>(values[i]) * w[n + i];
      out.push_back(static_cast<float>(sum));
    }
  }
  return out;
}

TEST_P(Linears, OfQuantisedRowsWithOneConvertOrSeveral) {
  for (const bool literal : {false, true}) {
    for (const bool shared : {false, true}) {
      GraphRunner runner;
      runner.literal = literal;
      const Weights& w = GetParam();
      Floats first, second;
      const Floats x = numbers(static_cast<size_t>(3 * w.columns), 2);
      const uint32_t input = runner.input({{1, 3, w.columns}, x});
      const uint32_t a = filter(runner, first), b = filter(runner, second);
      const Floats bias = numbers(static_cast<size_t>(w.rows), 1);
      const uint32_t bias_id = runner.constant({{w.rows}, bias});
      const uint32_t q1 = runner.quantised({1, 3, w.columns});
      const uint32_t q2 = shared ? q1 : runner.quantised({1, 3, w.columns});
      runner.add(NodeKind::kConvert, {input}, q1);
      if (!shared) runner.add(NodeKind::kConvert, {input}, q2);
      runner.add(NodeKind::kFullyConnected, {q1, a, xnnpack::kNone}, runner.output({1, 3, w.rows}));
      runner.add(NodeKind::kFullyConnected, {q2, b, bias_id}, runner.output({1, 3, w.rows}))
          .output_range = xnnpack::MinMax{0, kInf};
      const auto outputs = runner.run();
      ASSERT_TRUE(outputs) << outputs.error().message;
      expect_near(outputs->at(0).values, product(x, first, w.columns, true), 1e-5F);
      Floats want = product(x, second, w.columns, true);
      for (size_t i = 0; i < want.size(); ++i) {
        want[i] = std::max(0.0F, want[i] + bias[i % bias.size()]);
      }
      expect_near(outputs->at(1).values, want, 1e-5F);
    }
  }
}

TEST_P(Linears, OfRowsThatStayInF32WhereTheyAreWidened) {
  for (const bool rounded : {false, true}) {
    const Weights& w = GetParam();
    GraphRunner runner;
    runner.widen = true;
    runner.round_rows = rounded;
    Floats weights;
    const Floats x = numbers(static_cast<size_t>(2 * w.columns), 2);
    const uint32_t input = runner.input({{2, w.columns}, x});
    const uint32_t matrix = filter(runner, weights);
    const uint32_t rows = runner.quantised({2, w.columns});
    runner.add(NodeKind::kConvert, {input}, rows);
    runner.add(NodeKind::kFullyConnected, {rows, matrix}, runner.output({2, w.rows}));
    const auto outputs = runner.run();
    ASSERT_TRUE(outputs) << outputs.error().message;
    expect_near(outputs->at(0).values, product(x, weights, w.columns, rounded), 1e-5F);
  }
}

// One product takes the rows in f32, the other takes them quantised.
TEST_P(Linears, OfRoundedAndOfPlainRows) {
  const Weights& w = GetParam();
  if (w.group > 0) GTEST_SKIP() << "no weight of 4 bits in groups takes rows in f32";
  GraphRunner runner;
  runner.widen = runner.round_rows = true;
  Floats first, second;
  const Floats x = numbers(static_cast<size_t>(2 * w.columns), 2);
  const uint32_t input = runner.input({{2, w.columns}, x});
  const uint32_t a = filter(runner, first), b = filter(runner, second);
  const uint32_t rows = runner.quantised({2, w.columns});
  runner.add(NodeKind::kFullyConnected, {input, a}, runner.output({2, w.rows}));
  runner.add(NodeKind::kConvert, {input}, rows);
  runner.add(NodeKind::kFullyConnected, {rows, b}, runner.output({2, w.rows}));
  const auto outputs = runner.run();
  ASSERT_TRUE(outputs) << outputs.error().message;
  expect_near(outputs->at(0).values, product(x, first, w.columns, false), 1e-5F);
  expect_near(outputs->at(1).values, product(x, second, w.columns, true), 1e-5F);
}

TEST_P(Linears, OfF32RowsUnlessScalesAreOfGroups) {
  const Weights& w = GetParam();
  GraphRunner runner;
  Floats weights;
  const Floats x = numbers(static_cast<size_t>(2 * w.columns), 2);
  const uint32_t input = runner.input({{2, w.columns}, x});
  const uint32_t matrix = filter(runner, weights);
  runner.add(NodeKind::kFullyConnected, {input, matrix, xnnpack::kNone},
             runner.output({2, w.rows}));
  const auto outputs = runner.run();
  if (w.group > 0) {
    ASSERT_FALSE(outputs);
    EXPECT_EQ(outputs.error().message,
              "node 0 (FullyConnected): a filter in qbint4 for an input in f32 is not supported");
    return;
  }
  ASSERT_TRUE(outputs) << outputs.error().message;
  expect_near(outputs->at(0).values, product(x, weights, w.columns, false), 1e-5F);
}

INSTANTIATE_TEST_SUITE_P(All, Linears,
                         testing::Values(Weights{Datatype::kQBInt4, 5, 64, 32},
                                         Weights{Datatype::kQCInt8, 7, 33},
                                         Weights{Datatype::kQCInt4, 3, 64}));

TEST(Delegate, LinearInF32WithABias) {
  GraphRunner runner;
  const uint32_t x = runner.input({{2, 2}, {1, 2, 3, 4}});
  const uint32_t w = runner.constant({{3, 2}, {1, 0, 0, 1, 1, 1}});
  const uint32_t bias = runner.constant({{3}, {0, 0, -5}});
  runner.add(NodeKind::kFullyConnected, {x, w, bias}, runner.output({2, 3})).output_range =
      xnnpack::MinMax{-1, 3.5};
  const auto outputs = runner.run();
  ASSERT_TRUE(outputs) << outputs.error().message;
  EXPECT_EQ(outputs->at(0).values, (Floats{1, 2, -1, 3, 3.5, 2}));
}

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
  refuse([](GraphRunner& r) { r.graph.nodes[0].kind = NodeKind::kConv2d; },
         "node 0 (Conv2d): is not supported");
  refuse([](GraphRunner& r) { r.graph.nodes[0].flags = 4; },
         "node 0 (Add): flags 0x4 is not supported");
  refuse([](GraphRunner& r) { r.graph.values[0].datatype = Datatype::kBF16; },
         "graph value 0: an argument in bf16 is not supported");
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

TEST(Delegate, MatricesWithTheSameBytesArePackedOnce) {
  GraphRunner runner;
  const std::vector<std::byte> codes(32 * 64), scales(32 * 4);
  const uint32_t x = runner.input({{1, 64}, Floats(64)});
  const uint32_t w = runner.coded({32, 64}, Datatype::kQCInt8, 0, codes, scales);
  const uint32_t q = runner.quantised({1, 64});
  runner.add(NodeKind::kConvert, {x}, q);
  for (int i = 0; i < 10; ++i) {
    runner.add(NodeKind::kFullyConnected, {q, w}, runner.output({1, 32}));
  }
  // The memory suffices for one packed matrix, and for the rows.
  kernels::CodedMatrix matrix{.rows = 32, .columns = 64};
  matrix.codes = codes.data();
  matrix.scales = scales.data();
  ThreadPool pool(1);
  const uint64_t one = kernels::PackedMatrix::pack(matrix).bytes();
  runner.memory_bytes = one + kernels::dynamic_linear_scratch(1, 64);
  const Status enough = runner.compile();
  EXPECT_TRUE(enough) << enough.error().message;
  runner.memory_bytes = one - 1;
  const Status status = runner.compile();
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kIo);
}

}  // namespace
}  // namespace ferry::runner::delegate_test
