// mark_cuts: one program in several parts, with a copy of the hidden state between them.
#include <gtest/gtest.h>

#include <algorithm>

#include "graph/passes/passes.h"
#include "tests/graph/symbolic_run.h"
#include "tests/graph/tiny_models.h"

namespace ferry::graph::mark_cuts_test {
namespace {

std::vector<const Node*> fallbacks(const Graph& graph) {
  std::vector<const Node*> found;
  for (const Node& node : graph.nodes) {
    if (node.op == Op::kFallback) found.push_back(&node);
  }
  return found;
}

TEST(MarkCuts, MakesExactlyAsManyPartsAsAskedFor) {
  const Model whole = tiny_model({.layers = 5});
  const Terms inputs = {{"tokens", "tokens"}, {"input_pos", "input_pos"}};
  const SymbolicRun expected = run_symbolically(whole.methods[0].graph, inputs);
  for (int32_t count = 1; count <= 5; ++count) {
    const Result<Model> marked = mark_cuts(whole, count);
    ASSERT_TRUE(marked) << marked.error().message;
    const Graph& graph = marked->methods[0].graph;
    EXPECT_EQ(fallbacks(graph).size(), static_cast<size_t>(count - 1));
    const SymbolicRun run = run_symbolically(graph, inputs);
    EXPECT_EQ(run.outputs, expected.outputs) << count;
    EXPECT_EQ(run.probes, expected.probes) << count;
    EXPECT_EQ(run.state, expected.state) << count;
  }
}

TEST(MarkCuts, CutsWhereShardCuts) {
  const Model whole = tiny_model({.layers = 5});
  const Result<Model> marked = mark_cuts(whole, 3);
  const Result<std::vector<Model>> parts = shard(whole, 3);
  ASSERT_TRUE(marked && parts);
  const std::vector<const Node*> copies = fallbacks(marked->methods[0].graph);
  ASSERT_EQ(copies.size(), 2U);
  for (size_t part = 0; part < 2; ++part) {
    int32_t last = 0;
    for (const Node& node : (*parts)[part].methods[0].graph.nodes)
      last = std::max(last, node.layer);
    EXPECT_EQ(copies[part]->layer, last);
  }
}

TEST(MarkCuts, RefusesCountsThatTheModelDoesNotHave) {
  for (const int32_t count : {-1, 0, 6}) {
    const Result<Model> marked = mark_cuts(tiny_model({.layers = 5}), count);
    ASSERT_FALSE(marked) << count;
    EXPECT_EQ(marked.error().code, ErrorCode::kUsage);
  }
}

// Boundaries stay quantised, however often shapes and dtypes are inferred.
TEST(MarkCuts, KeepsTheDtypeOfWhatCrosses) {
  GraphBuilder b(2);
  const ValueId x = b.input("x", DType::kF32, {1, 4});
  b.set_layer(0);
  const ValueId codes = b.quantize(b.add(x, x), 0.5, 7, DType::kU16);
  b.set_layer(1);
  b.output(b.dequantize(codes, 0.5, 7), "y");
  Result<Graph> graph = b.finish();
  ASSERT_TRUE(graph) << graph.error().message;
  Model model;
  model.methods.push_back({"forward", *std::move(graph)});
  const Result<Model> marked = mark_cuts(std::move(model), 2);
  ASSERT_TRUE(marked) << marked.error().message;
  for (const Graph& again : {marked->methods[0].graph, remove_dead(marked->methods[0].graph)}) {
    const std::vector<const Node*> copies = fallbacks(again);
    ASSERT_EQ(copies.size(), 1U);
    EXPECT_EQ(again[std::get<ValueId>(copies[0]->args[0])].dtype, DType::kU16);
    EXPECT_EQ(again[copies[0]->outs[0]].dtype, DType::kU16);
    EXPECT_TRUE(validate(again));
  }
  // validate() finds a boundary of another dtype.
  Graph wrong = marked->methods[0].graph;
  wrong[fallbacks(wrong)[0]->outs[0]].dtype = DType::kF32;
  EXPECT_FALSE(validate(wrong));
}

}  // namespace
}  // namespace ferry::graph::mark_cuts_test
