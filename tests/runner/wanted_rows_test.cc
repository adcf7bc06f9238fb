// Rows of an output that are not wanted are not computed. The other rows have the bits that they
// have among all rows.
#include <gtest/gtest.h>

#include <cmath>

#include "formats/xnnpack/writer.h"
#include "tests/runner/op_runner.h"

namespace ferry::runner::wanted_rows_test {
namespace {

constexpr int64_t kRows = 14, kColumns = 3, kDepth = 5;

Values waves(const Shape& shape, int64_t n) {
  Values values = f32(shape, {});
  for (int64_t i = 0; i < n; ++i) values.values.push_back(std::sin(static_cast<double>(i)));
  return values;
}

// The product of -x and a matrix is made by an operator, by an operator on codes of x, with a coded
// matrix, or by a delegate.
enum class Kind { kLinear, kCoded, kMixed, kDelegate };
constexpr Kind kKinds[] = {Kind::kLinear, Kind::kCoded, Kind::kMixed, Kind::kDelegate};

// Makes a linear layer whose f32 matrix is the named data "w".
xnnpack::Graph linear_graph() {
  xnnpack::Graph graph;
  for (const uint32_t id : {0U, 1U, 2U}) graph.values.emplace_back().id = id;
  graph.values[0].dims = {1, kRows, kDepth};
  graph.values[0].external = 0;
  graph.values[0].is_input = true;
  graph.values[1].dims = {kColumns, kDepth};
  graph.values[1].constant = 1;
  graph.values[2].dims = {1, kRows, kColumns};
  graph.values[2].external = 1;
  graph.values[2].is_output = true;
  graph.num_externals = 2;
  graph.constants.push_back({"w", 0, kColumns * kDepth * sizeof(float)});
  xnnpack::Node& node = graph.nodes.emplace_back();
  node.kind = xnnpack::NodeKind::kFullyConnected;
  node.inputs = {0, 1, xnnpack::kNone};
  node.outputs = {2};
  return graph;
}

struct Head {
  explicit Head(Kind kind) : shape({1, kRows}) {
    if (kind == Kind::kMixed) shape = {kRows};  // this operator takes matrices only
    const int32_t input = program.unplanned(DType::kF32, with(kDepth));
    const int32_t x = program.planned(DType::kF32, with(kDepth));
    product = program.planned(DType::kF32, with(kColumns));
    program.method().inputs = {input};
    program.method().outputs = {product};
    program.call("aten::neg.out", {input, x});
    if (kind == Kind::kMixed) {
      add_mixed(x);
    } else if (kind == Kind::kDelegate) {
      add_delegate(x);
    } else {
      add_linear(x, kind == Kind::kCoded);
    }
  }

  Shape with(int64_t columns) const {
    Shape all = shape;
    all.push_back(columns);
    return all;
  }

  void add_linear(int32_t x, bool coded) {
    program.call("aten::linear.out",
                 {x, program.constant(waves({kColumns, kDepth}, kColumns * kDepth)),
                  program.add(pte::None{}), product});
    if (!coded) return;
    const int32_t codes = program.planned(DType::kU8, with(kColumns));
    program.call("quantized_decomposed::quantize_per_tensor.out",
                 {product, program.add(0.03), program.add(int64_t{120}), program.add(int64_t{0}),
                  program.add(int64_t{255}),
                  program.add(int64_t{dtype_info(DType::kU8).executorch}), codes});
    program.method().outputs = {codes};
  }

  void add_mixed(int32_t x) {
    Values codes = waves({kColumns, kDepth}, kColumns * kDepth);
    codes.dtype = DType::kI8;
    for (double& value : codes.values) value = std::round(value * 100);
    program.call("quantized_decomposed::mixed_linear.out",
                 {x, program.constant(codes), program.constant(f32({kColumns}, {0.1, 0.2, 0.3})),
                  program.add(pte::None{}), program.add(pte::None{}), product});
  }

  void add_delegate(int32_t x) {
    weights = encode(waves({kColumns, kDepth}, kColumns * kDepth));
    blob = xnnpack::write_blob(linear_graph()).value();
    program.method().delegates = {{std::string(xnnpack::kBackend), 0}};
    program.loaded().program.named_data = {{"w", 0}};
    program.loaded().data.delegates = {blob};
    program.loaded().data.named = {weights};
    program.method().instructions.push_back(pte::DelegateCall{0, {x, product}});
  }

  std::vector<double> run(Method& method) const {
    const Values x = waves(with(kDepth), kRows * kDepth);
    const std::vector<std::byte> bytes = encode(x);
    EXPECT_TRUE(method.set_input(0, {x.dtype, x.shape, bytes}));
    const Status status = method.execute();
    EXPECT_TRUE(status) << status.error().message;
    EXPECT_EQ(method.output(0).shape, with(kColumns));
    return decode(method.output(0)).values;
  }

  ProgramBuilder program;
  Shape shape;  // without the last dimension
  int32_t product = 0;
  std::vector<std::byte> blob, weights;
};

bool is_poison(double value, bool coded) { return coded ? value == 255 : std::isnan(value); }

TEST(WantedRows, AreThoseOfAllRows) {
  for (const Kind kind : kKinds) {
    SCOPED_TRACE(static_cast<int>(kind));
    const bool coded = kind == Kind::kCoded;
    Head head(kind);
    Method all = *head.program.load({.poison = true});
    const std::vector<double> expected = head.run(all);
    for (const auto& [begin, count] :
         {std::pair<int64_t, int64_t>{13, 1}, {0, 1}, {3, 4}, {5, 0}}) {
      Method method = *head.program.load({.poison = true});
      method.want_rows(0, begin, count);
      for (int call = 0; call < 2; ++call) {
        const std::vector<double> rows = head.run(method);
        for (int64_t i = 0; i < kRows * kColumns; ++i) {
          const bool wanted = i >= begin * kColumns && i < (begin + count) * kColumns;
          const auto at = static_cast<size_t>(i);
          EXPECT_TRUE(wanted ? rows[at] == expected[at] : is_poison(rows[at], coded)) << i;
        }
      }
      method.want_rows(0, 0, kRows);
      EXPECT_EQ(head.run(method), expected);
    }
  }
}

TEST(WantedRows, AreAllRowsForAnObserverAndInProgramsAsStated) {
  for (const bool literal : {false, true}) {
    Head head(Kind::kCoded);
    Method method = *head.program.load({.poison = true, .literal = literal});
    const std::vector<double> expected = head.run(method);
    Method other = *head.program.load({.poison = true, .literal = literal});
    other.want_rows(0, 1, 1);
    if (!literal) {
      EXPECT_TRUE(other.observe(head.product, [](const TensorView&) {}));
      other.want_rows(0, 1, 1);
    }
    EXPECT_EQ(head.run(other), expected);
  }
}

}  // namespace
}  // namespace ferry::runner::wanted_rows_test
