// Axes of dimensions: every operator keeps them, the builder names them, and validate checks them.
#include <gtest/gtest.h>

#include <string>

#include "graph/builder.h"
#include "graph/dims.h"
#include "graph/passes/passes.h"

namespace ferry::graph::dims_test {
namespace {

using enum Axis;

class Axes : public testing::Test {
 protected:
  Dim axis(int64_t size, Axis name) { return Dim(size).as(name); }
  ValueId input(const char* name, Dims shape) { return b.input(name, DType::kF32, shape); }
  std::vector<Axis> of(ValueId id) {
    std::vector<Axis> axes;
    for (const Dim& dim : b.graph()[id].shape) axes.push_back(dim.axis);
    return axes;
  }
  // Returns the first misuse; empty if there is none.
  std::string problem() {
    const Result<Graph> graph = b.finish();
    return graph ? "" : graph.error().message;
  }

  GraphBuilder b{1};
  Dim batch = axis(1, kBatch), tokens = axis(6, kSequence), width = axis(8, kFeature);
};

using AxisNames = std::vector<Axis>;

TEST_F(Axes, ElementwiseOperatorsKeepTheNameOfEitherOperand) {
  const ValueId x = input("x", {batch, tokens, width});
  const ValueId plain = input("plain", {1, 6, 1});
  const AxisNames all = {kBatch, kSequence, kFeature};
  EXPECT_EQ(of(b.add(x, plain)), all);
  EXPECT_EQ(of(b.mul(plain, x)), all);
  EXPECT_EQ(of(b.mul(x, input("row", {8}))), all);
  EXPECT_EQ(of(b.tanh(x)), all);
  EXPECT_EQ(of(b.softmax_last(x)), all);
  EXPECT_EQ(of(b.where(b.ge(b.to(x, DType::kI64), 0), plain, x)), all);
  EXPECT_EQ(of(b.mean_last(x)), all);  // the axis of size 1 is still that of the features
  EXPECT_EQ(of(b.amin_last(x)), all);
  EXPECT_EQ(of(b.topk_last(x, 2).second), all);
  EXPECT_EQ(of(b.fallback(x)), all);
  EXPECT_EQ(of(b.dequantize(b.quantize(x, 0.5, 3, DType::kU8), 0.5, 3)), all);
  EXPECT_EQ(problem(), "");
}

TEST_F(Axes, OperatorsThatMoveElementsMoveTheNames) {
  const ValueId x = input("x", {batch, tokens, width});
  EXPECT_EQ(of(b.permute(x, {2, 0, 1})), (AxisNames{kFeature, kBatch, kSequence}));
  EXPECT_EQ(of(b.select(x, 1, 0)), (AxisNames{kBatch, kFeature}));
  EXPECT_EQ(of(b.slice(x, 1, 2, 4)), (AxisNames{kBatch, kSequence, kFeature}));
  EXPECT_EQ(of(b.unsqueeze(x, 2)), (AxisNames{kBatch, kSequence, kNone, kFeature}));
  EXPECT_EQ(of(b.expand(x, {5, 6, 8})), (AxisNames{kBatch, kSequence, kFeature}));
  EXPECT_EQ(of(b.split(x, {3, 5}, 2)[1]), (AxisNames{kBatch, kSequence, kFeature}));
  EXPECT_EQ(of(b.cat({x, input("plain", {1, 2, 8})}, 1)), (AxisNames{kBatch, kSequence, kFeature}));
  EXPECT_EQ(problem(), "");
}

TEST_F(Axes, ProductsHaveTheOuterNames) {
  const ValueId x = input("x", {batch, tokens, width});
  EXPECT_EQ(of(b.linear(x, b.weight("w", {axis(3, kHead), width}))),
            (AxisNames{kBatch, kSequence, kHead}));
  const ValueId left = input("left", {axis(2, kHead), tokens, axis(4, kHeadDim)});
  const ValueId right = input("right", {2, axis(4, kHeadDim), axis(7, kSequence)});
  EXPECT_EQ(of(b.bmm(left, right)), (AxisNames{kHead, kSequence, kSequence}));
  const ValueId ids = b.input("ids", DType::kI64, {batch, tokens});
  EXPECT_EQ(of(b.embedding(b.weight("table", {10, width}), ids)),
            (AxisNames{kBatch, kSequence, kFeature}));
  EXPECT_EQ(problem(), "");
}

TEST_F(Axes, AViewKeepsLeadingNamesAndTakesTheOthersFromTheBuilder) {
  const ValueId x = input("x", {batch, tokens, width});
  const ValueId split = b.view(x, {1, 6, axis(2, kHead), axis(4, kHeadDim)});
  // After a view, a dimension of size 1 may be another axis, so it has no name.
  EXPECT_EQ(of(split), (AxisNames{kNone, kSequence, kHead, kHeadDim}));
  EXPECT_EQ(of(b.view(x, {axis(1, kHead), 6, 2, 4})), (AxisNames{kHead, kSequence, kNone, kNone}));
  EXPECT_EQ(of(b.view(split, {1, 6, 8})), (AxisNames{kNone, kSequence, kNone}));
  EXPECT_EQ(of(b.view(x, {1, 6, 8})), (AxisNames{kBatch, kSequence, kFeature}));
  EXPECT_EQ(of(b.view(x, {6, 8})), (AxisNames{kNone, kNone}));
  EXPECT_EQ(problem(), "");
}

// With one head, or with heads of one element, equal sizes prove nothing about axes.
TEST_F(Axes, AViewDoesNotConcludeNamesFromEqualSizes) {
  const ValueId x = input("x", {batch, tokens, width});
  const ValueId one_head = b.view(x, {1, 6, axis(1, kHead), axis(8, kHeadDim)});
  EXPECT_EQ(of(one_head), (AxisNames{kNone, kSequence, kHead, kHeadDim}));
  EXPECT_EQ(of(b.view(one_head, {1, 6, width})), (AxisNames{kNone, kSequence, kFeature}));
  const ValueId small_heads = b.view(x, {1, 6, axis(8, kHead), axis(1, kHeadDim)});
  EXPECT_EQ(of(small_heads), (AxisNames{kNone, kSequence, kHead, kHeadDim}));
  EXPECT_EQ(of(b.view(small_heads, {1, 6, width})), (AxisNames{kNone, kSequence, kFeature}));
  EXPECT_EQ(problem(), "");
}

// With one head and one token, a view may exchange axes of equal sizes.
TEST_F(Axes, AViewOfTheSameSizesMayMeanOtherAxes) {
  const ValueId x = input("x", {batch, axis(1, kSequence), width});
  const ValueId heads = b.view(x, {axis(1, kSequence), axis(1, kHead), axis(8, kHeadDim)});
  EXPECT_EQ(of(heads), (AxisNames{kSequence, kHead, kHeadDim}));
  EXPECT_EQ(of(b.view(heads, {batch, axis(1, kSequence), width})),
            (AxisNames{kBatch, kSequence, kFeature}));
  EXPECT_EQ(problem(), "");
}

TEST_F(Axes, TwoNamesOfOneDimensionAreAMisuse) {
  using Build = void (*)(GraphBuilder&, ValueId x, ValueId other);
  // `other` has the shape of x, with heads where x has features.
  const Build builds[] = {
      [](GraphBuilder& g, ValueId x, ValueId other) { g.add(x, other); },
      [](GraphBuilder& g, ValueId x, ValueId other) {
        g.cat({x, other}, 1);
      },
      [](GraphBuilder& g, ValueId x, ValueId other) {
        g.where(g.ge(g.to(x, DType::kI64), 0), x, other);
      },
      [](GraphBuilder& g, ValueId x, ValueId) {
        g.linear(x, g.weight("w", {3, Dim(8).as(kHead)}));
      },
      [](GraphBuilder& g, ValueId x, ValueId other) {
        g.bmm(x, g.permute(other, {0, 2, 1}));
      },
      [](GraphBuilder& g, ValueId x, ValueId) {
        g.view(x, {1, Dim(6).as(kHead), 8});
      },
      [](GraphBuilder& g, ValueId x, ValueId) {
        g.expand(x, {1, 6, Dim(8).as(kHead)});
      },
      [](GraphBuilder& g, ValueId, ValueId) {
        g.weight("w", {Dim(8).as(kHead)});
        g.weight("w", {Dim(8).as(kFeature)});
      },
      [](GraphBuilder& g, ValueId x, ValueId) {
        g.copy_into(g.buffer("s", DType::kF32, {1, 6, Dim(8).as(kHead)}), x);
      },
  };
  for (size_t i = 0; i < std::size(builds); ++i) {
    GraphBuilder g(1);
    const ValueId x = g.input("x", DType::kF32, {batch, tokens, width});
    const ValueId other = g.input("other", DType::kF32, {batch, tokens, Dim(8).as(kHead)});
    builds[i](g, x, other);
    const Result<Graph> graph = g.finish();
    ASSERT_FALSE(graph) << i;
    EXPECT_EQ(graph.error().code, ErrorCode::kInternal) << i;
  }
}

TEST_F(Axes, AttentionNeedsOneNameForEachDimensionOfQueryKeysAndValues) {
  const Dims shape = {batch, tokens, axis(2, kHead), axis(4, kHeadDim)};
  const ValueId query = input("q", shape);
  const ValueId keys = b.buffer("k", DType::kF32, shape);
  const ValueId start = b.item(b.input("start", DType::kI64, {1}));
  b.update_cache(query, keys, start);
  EXPECT_EQ(of(b.sdpa(query, keys, keys, start)), (AxisNames{kBatch, kSequence, kHead, kHeadDim}));
  b.sdpa(query, b.buffer("wrong", DType::kF32, {batch, axis(6, kHead), 2, 4}), keys, start);
  EXPECT_NE(problem().find("axes differ"), std::string::npos);
}

TEST_F(Axes, ValidateFindsALostAndAWrongName) {
  const ValueId y = b.tanh(input("x", {batch, tokens, width}));
  b.output(y, "y");
  Graph graph = b.finish().value();
  EXPECT_EQ(to_text(graph, DType::kF32, graph[y].shape), "f32[1:batch,6:sequence,8:feature]");
  graph[y].shape[2].axis = kNone;
  EXPECT_FALSE(validate(graph));
  graph[y].shape[2].axis = kHead;
  EXPECT_FALSE(validate(graph));
  graph[y].shape[2].axis = kFeature;
  EXPECT_TRUE(validate(graph));
}

}  // namespace
}  // namespace ferry::graph::dims_test
