#include "graph/passes/quantize_weights.h"

#include <gtest/gtest.h>

#include "core/tensor_source.h"
#include "formats/pte/reader.h"
#include "formats/pte/writer.h"
#include "formats/xnnpack/reader.h"
#include "graph/builder.h"
#include "graph/lower.h"
#include "graph/passes/passes.h"
#include "tests/graph/tiny_models.h"

namespace ferry::graph::quantize_weights_test {
namespace {

using Kind = LinearQuantization::Kind;

constexpr int64_t kWidth = 64;

// The model has a table, two projections of one activation, one of their sum, a router, and a head.
Model projections() {
  GraphBuilder b(1);
  const int32_t t = b.symbol("T", 8, {});
  const ValueId ids = b.input("ids", DType::kI64, {1, Dim::of(t)});
  b.bind_symbol(t, b.sym_size(ids, 1));
  const ValueId x = b.embedding(b.weight("table.weight", {9, kWidth}), ids);
  b.set_layer(0);
  const ValueId q = b.linear(x, b.weight("layers.0.wq.weight", {32, kWidth}));
  const ValueId k = b.linear(x, b.weight("layers.0.wk.weight", {32, kWidth}));
  const ValueId router = b.linear(x, b.weight_f32("layers.0.router.weight", {32, kWidth}));
  const ValueId sum = b.add(b.add(q, k), router);
  b.output(b.linear(sum, b.weight("output.weight", {9, 32})), "out");
  Graph graph = *b.finish();
  StateDict dict = weights_for(graph, DType::kBF16);
  return *bind({{"forward", std::move(graph)}}, std::move(dict), "test");
}

Result<QuantizedModel> quantized(const QuantizeOptions& options, Model model = projections()) {
  const ferry::MemorySource source("test");
  return quantize_weights(std::move(model), options, source);
}

std::vector<const Node*> nodes_of(const Graph& graph, Op op) {
  std::vector<const Node*> nodes;
  for (const Node& node : graph.nodes) {
    if (node.op == op) nodes.push_back(&node);
  }
  return nodes;
}

TEST(QuantizeWeights, ProductsOfOneActivationAreOneCallOfTheDelegate) {
  const auto out = quantized({.linears = {Kind::k8da4w, 32}});
  ASSERT_TRUE(out) << out.error().message;
  const Graph& graph = out->model.methods[0].graph;
  const auto calls = nodes_of(graph, Op::kDynamicLinears);
  ASSERT_EQ(calls.size(), 2u);
  EXPECT_EQ(calls[0]->outs.size(), 2u);
  EXPECT_EQ(calls[1]->outs.size(), 1u);
  // The router stays in f32.
  EXPECT_EQ(nodes_of(graph, Op::kLinear).size(), 1u);
  EXPECT_EQ(out->summary, "8da4w-g32 x 3");
}

TEST(QuantizeWeights, CodesAndScalesHaveTheStoredForms) {
  const auto out =
      quantized({.linears = {Kind::k8da4w, 32},
                 .embeddings = {4, 32},
                 .rules = {{"layers.*.wk", {Kind::k8da8w}}, {"output", {Kind::kInt8}}}});
  ASSERT_TRUE(out) << out.error().message;
  const auto form = [&](const std::string& key) {
    const WeightOutput found = out->model.weights.find_output(key);
    const RecipeOutput& output = found.weight->recipe.outputs[found.output];
    return std::pair(output.dtype, output.shape);
  };
  EXPECT_EQ(form("layers.0.wq.weight"), std::pair(DType::kI4, Shape{32, 64}));
  EXPECT_EQ(form("layers.0.wq.weight.scales"), std::pair(DType::kBF16, Shape{32, 2}));
  EXPECT_EQ(form("layers.0.wk.weight"), std::pair(DType::kI8, Shape{32, 64}));
  EXPECT_EQ(form("layers.0.wk.weight.scales"), std::pair(DType::kF32, Shape{32}));
  EXPECT_EQ(form("output.weight"), std::pair(DType::kI8, Shape{9, 32}));
  EXPECT_EQ(form("table.weight"), std::pair(DType::kI4, Shape{9, 64}));
  EXPECT_EQ(form("table.weight.scales"), std::pair(DType::kF32, Shape{9, 2}));
  EXPECT_EQ(out->summary, "8da4w-g32 x 1, 8da8w x 1, embedding 4,32 x 1, int8 x 1");
  EXPECT_EQ(out->used_rules, (std::vector<size_t>{0, 1}));
}

TEST(QuantizeWeights, TheLastMatchingRuleDecides) {
  const auto out = quantized({.linears = {Kind::k8da4w, 32},
                              .rules = {{"layers.*", {Kind::k8da8w}}, {"*.wk.weight", {}}}});
  ASSERT_TRUE(out) << out.error().message;
  EXPECT_EQ(out->summary, "8da4w-g32 x 1, 8da8w x 1");
  EXPECT_EQ(out->model.weights.find("layers.0.wk.weight")->recipe.outputs.size(), 1u);
}

TEST(QuantizeWeights, AGroupThatDoesNotDivideARowFallsToTheLargestThatDoes) {
  const auto out = quantized({.linears = {Kind::k8da4w, 96}, .embeddings = {4, 48}});
  ASSERT_TRUE(out) << out.error().message;
  EXPECT_EQ(out->summary, "8da4w-g32 x 1, 8da4w-g64 x 2, embedding 4,32 x 1");
  EXPECT_EQ(out->replaced, (ReplacedSchemes{{"8da4w-g96", {{"8da4w-g32", 1}, {"8da4w-g64", 2}}},
                                            {"embedding 4,48", {{"embedding 4,32", 1}}}}));
  const auto fits = quantized({.linears = {Kind::k8da4w, 32}});
  ASSERT_TRUE(fits) << fits.error().message;
  EXPECT_TRUE(fits->replaced.empty());
}

// The delegated nodes are lowered, and read back from the file.
TEST(QuantizeWeights, TheProgramCallsDelegatesWhoseBlobsNameTheWeights) {
  auto out = quantized({.linears = {Kind::k8da4w, 32}, .rules = {{"output", {Kind::k8da8w}}}});
  ASSERT_TRUE(out) << out.error().message;
  const auto model = cast_weights(std::move(out->model), WeightDType::kKeep);
  ASSERT_TRUE(model) << model.error().message;
  const auto program = lower(model->methods, {});
  ASSERT_TRUE(program) << program.error().message;
  EXPECT_EQ(program->named,
            (std::vector<std::string>{"layers.0.wq.weight", "layers.0.wq.weight.scales",
                                      "layers.0.wk.weight", "layers.0.wk.weight.scales",
                                      "output.weight", "output.weight.scales"}));
  EXPECT_EQ(program->weights, (std::vector<std::string>{"table.weight", "layers.0.router.weight"}));
  ASSERT_EQ(program->delegates.size(), 2u);
  const auto blob = xnnpack::read_blob(program->delegates[0], "blob");
  ASSERT_TRUE(blob) << blob.error().message;
  EXPECT_EQ(blob->num_externals, 3u);
  ASSERT_EQ(blob->nodes.size(), 3u);
  EXPECT_EQ(blob->nodes[0].kind, xnnpack::NodeKind::kConvert);
  EXPECT_EQ(blob->values[0].dims, (std::vector<uint32_t>{1, 8, 64}));
  EXPECT_EQ(blob->values[2].datatype, xnnpack::Datatype::kQBInt4);
  const auto head = xnnpack::read_blob(program->delegates[1], "blob");
  ASSERT_TRUE(head) << head.error().message;
  EXPECT_EQ(head->values[2].datatype, xnnpack::Datatype::kQCInt8);
  const auto layout = pte::plan_program(program->program, program->sizes);
  EXPECT_TRUE(layout) << layout.error().message;
}

TEST(QuantizeWeights, ExpertsBecomeTablesOfRows) {
  GraphBuilder b(1);
  const int32_t t = b.symbol("T", 8, {});
  const ValueId x = b.input("x", DType::kF32, {Dim::of(t), kWidth});
  b.bind_symbol(t, b.sym_size(x, 0));
  b.set_layer(0);
  const ValueId router = b.linear(x, b.weight_f32("router", {4, kWidth}));
  const auto [scores, ids] = b.topk_last(b.softmax_last(router), 2);
  const ValueId w1 = b.weight("w1.weight", {4, 32, kWidth});
  const ValueId w3 = b.weight("w3.weight", {4, 32, kWidth});
  const ValueId w2 = b.weight("w2.weight", {4, kWidth, 32});
  b.output(b.experts(x, ids, scores, w1, w3, w2), "out");
  Graph graph = *b.finish();
  StateDict dict = weights_for(graph, DType::kBF16);
  auto model = *bind({{"forward", std::move(graph)}}, std::move(dict), "test");
  auto out = quantized({.linears = {Kind::k8da4w, 32}, .rules = {{"w2", {Kind::kInt8}}}},
                       std::move(model));
  ASSERT_TRUE(out) << out.error().message;
  const auto cast = cast_weights(std::move(out->model), WeightDType::kKeep);
  ASSERT_TRUE(cast) << cast.error().message;
  const auto program = lower(cast->methods, {});
  ASSERT_TRUE(program) << program.error().message;
  EXPECT_TRUE(program->delegates.empty());
  EXPECT_EQ(std::ranges::count(program->weights, "w1.weight.scales"), 1);
  const auto layout = pte::plan_program(program->program, program->sizes);
  EXPECT_TRUE(layout) << layout.error().message;
}

}  // namespace
}  // namespace ferry::graph::quantize_weights_test
