// split_heads, tested as {before, pass, after}, and its refusals.
// tests/plan/conversion_split_heads_test.cc executes its results.
#include <gtest/gtest.h>

#include <functional>

#include "graph/passes/passes.h"
#include "tests/graph/tiny_models.h"

namespace ferry::graph::split_heads_test {
namespace {

Dim heads(int64_t count) { return Dim(count).as(Axis::kHead); }

struct Block {
  int64_t query_heads = 2, kv_heads = 2, head_dim = 3, tokens = 2, past = 4;
  // Is applied between a projection and the view of it.
  std::function<ValueId(GraphBuilder&, ValueId)> projected = [](GraphBuilder&, ValueId x) {
    return x;
  };
};

// Attention as the blocks write it: query heads that share keys are rows of one product.
Graph attention(const Block& o) {
  GraphBuilder b(1);
  const int64_t all = o.past + o.tokens, groups = o.query_heads / o.kv_heads;
  const Dim kv = heads(o.kv_heads);
  const ValueId x = b.input("x", DType::kF32, {1, o.tokens, 5});
  const ValueId past_keys = b.input("k_cache", DType::kF32, {1, kv, o.head_dim, o.past});
  const ValueId past_values = b.input("v_cache", DType::kF32, {1, kv, o.past, o.head_dim});
  const ValueId mask = b.input("mask", DType::kF32, {1, 1, o.tokens, all});
  b.set_layer(0);
  const auto project = [&](const char* name, int64_t count) {
    const ValueId weight = b.weight(name + std::string(".weight"), {count * o.head_dim, 5});
    const ValueId y = o.projected(b, b.linear(x, weight));
    return b.view(y, {1, o.tokens, heads(count), o.head_dim});
  };
  const ValueId q = b.permute(project("wq", o.query_heads), {0, 2, 1, 3});
  const ValueId k = b.permute(project("wk", o.kv_heads), {0, 2, 3, 1});
  const ValueId v = b.permute(project("wv", o.kv_heads), {0, 2, 1, 3});
  const ValueId rows = b.view(q, {kv, groups * o.tokens, o.head_dim});
  const ValueId keys = b.view(b.cat({past_keys, k}, 3), {kv, o.head_dim, all});
  const ValueId values = b.view(b.cat({past_values, v}, 2), {kv, all, o.head_dim});
  const ValueId scores = b.view(b.bmm(rows, keys), {kv, groups, o.tokens, all});
  const ValueId weights = b.softmax_last(b.add(scores, mask));
  const ValueId mixed = b.bmm(b.view(weights, {kv, groups * o.tokens, all}), values);
  const ValueId by_head = b.view(mixed, {1, heads(o.query_heads), o.tokens, o.head_dim});
  const ValueId joined =
      b.view(b.permute(by_head, {0, 2, 1, 3}), {1, o.tokens, o.query_heads * o.head_dim});
  b.output(b.linear(joined, b.weight("wo.weight", {5, o.query_heads * o.head_dim})), "y");
  b.output(k, "new_k");
  b.output(v, "new_v");
  return *b.finish();
}

Result<Model> split(const Graph& graph) {
  return split_heads(*bind({{"forward", graph}}, weights_for(graph), "test"));
}

std::string refusal(const Graph& graph) {
  const Result<Model> model = split(graph);
  EXPECT_FALSE(model.has_value());
  if (model) return "";
  EXPECT_EQ(model.error().code, ErrorCode::kUnsupported);
  return model.error().message;
}

size_t count(const Graph& graph, Op op) {
  return static_cast<size_t>(std::ranges::count(graph.nodes, op, &Node::op));
}

TEST(SplitHeads, TwoQueryHeadsOfOneKeyHead) {
  const Result<Model> model = split(attention({.kv_heads = 1}));
  ASSERT_TRUE(model) << model.error().message;
  EXPECT_EQ(
      to_text(model->methods[0].graph),
      "input %0 f32[1,2,5] x\n"
      "input %1 f32[1,1:head,3,4] k_cache\n"
      "input %2 f32[1,1:head,4,3] v_cache\n"
      "input %3 f32[1,1,2,6] mask\n"
      "weight %4 f32[3,5] wk.weight\n"
      "weight %8 f32[3,5] wv.weight\n"
      "weight %17 f32[5,6] wo.weight\n"
      "weight %19 f32[3,5] wq.0.weight\n"
      "weight %33 f32[3,5] wq.1.weight\n"
      "%5 f32[1,2,3] = aten::linear.out(%0, %4, none)  # layer 0\n"
      "%6 f32[1,2,1:head,3] = executorch_prim::et_view.default(%5, [1, 2, 1, 3])  # layer 0\n"
      "%7 f32[1,1:head,3,2] = aten::permute_copy.out(%6, [0, 2, 3, 1])  # layer 0\n"
      "%9 f32[1,2,3] = aten::linear.out(%0, %8, none)  # layer 0\n"
      "%10 f32[1,2,1:head,3] = executorch_prim::et_view.default(%9, [1, 2, 1, 3])  # layer 0\n"
      "%11 f32[1,1:head,2,3] = aten::permute_copy.out(%10, [0, 2, 1, 3])  # layer 0\n"
      "%12 f32[1,1:head,3,6] = aten::cat.out({%1, %7}, 3)  # layer 0\n"
      "%13 f32[1:head,3,6] = executorch_prim::et_view.default(%12, [1, 3, 6])  # layer 0\n"
      "%14 f32[1,1:head,6,3] = aten::cat.out({%2, %11}, 2)  # layer 0\n"
      "%15 f32[1:head,6,3] = executorch_prim::et_view.default(%14, [1, 6, 3])  # layer 0\n"
      "%20 f32[1,2,3] = aten::linear.out(%0, %19, none)  # layer 0\n"
      "%21 f32[1,2,1:head,3] = executorch_prim::et_view.default(%20, [1, 2, 1, 3])  # layer 0\n"
      "%22 f32[1,1:head,2,3] = aten::permute_copy.out(%21, [0, 2, 1, 3])  # layer 0\n"
      "%23 f32[1:head,2,3] = executorch_prim::et_view.default(%22, [1, 2, 3])  # layer 0\n"
      "%24 f32[1:head,2,6] = aten::bmm.out(%23, %13)  # layer 0\n"
      "%25 f32[1:head,1,2,6] = executorch_prim::et_view.default(%24, [1, 1, 2, 6])  # layer 0\n"
      "%26 f32[1:head,1,2,6] = aten::add.out(%25, %3, 1)  # layer 0\n"
      "%27 f32[1:head,1,2,6] = aten::_softmax.out(%26, -1, false)  # layer 0\n"
      "%28 f32[1:head,2,6] = executorch_prim::et_view.default(%27, [1, 2, 6])  # layer 0\n"
      "%29 f32[1:head,2,3] = aten::bmm.out(%28, %15)  # layer 0\n"
      "%30 f32[1,1:head,2,3] = executorch_prim::et_view.default(%29, [1, 1, 2, 3])  # layer 0\n"
      "%31 f32[1,2,1:head,3] = aten::permute_copy.out(%30, [0, 2, 1, 3])  # layer 0\n"
      "%32 f32[1,2,3] = executorch_prim::et_view.default(%31, [1, 2, 3])  # layer 0\n"
      "%34 f32[1,2,3] = aten::linear.out(%0, %33, none)  # layer 0\n"
      "%35 f32[1,2,1:head,3] = executorch_prim::et_view.default(%34, [1, 2, 1, 3])  # layer 0\n"
      "%36 f32[1,1:head,2,3] = aten::permute_copy.out(%35, [0, 2, 1, 3])  # layer 0\n"
      "%37 f32[1:head,2,3] = executorch_prim::et_view.default(%36, [1, 2, 3])  # layer 0\n"
      "%38 f32[1:head,2,6] = aten::bmm.out(%37, %13)  # layer 0\n"
      "%39 f32[1:head,1,2,6] = executorch_prim::et_view.default(%38, [1, 1, 2, 6])  # layer 0\n"
      "%40 f32[1:head,1,2,6] = aten::add.out(%39, %3, 1)  # layer 0\n"
      "%41 f32[1:head,1,2,6] = aten::_softmax.out(%40, -1, false)  # layer 0\n"
      "%42 f32[1:head,2,6] = executorch_prim::et_view.default(%41, [1, 2, 6])  # layer 0\n"
      "%43 f32[1:head,2,3] = aten::bmm.out(%42, %15)  # layer 0\n"
      "%44 f32[1,1:head,2,3] = executorch_prim::et_view.default(%43, [1, 1, 2, 3])  # layer 0\n"
      "%45 f32[1,2,1:head,3] = aten::permute_copy.out(%44, [0, 2, 1, 3])  # layer 0\n"
      "%46 f32[1,2,3] = executorch_prim::et_view.default(%45, [1, 2, 3])  # layer 0\n"
      "%16 f32[1,2,6] = aten::cat.out({%32, %46}, 2)  # layer 0\n"
      "%18 f32[1,2,5] = aten::linear.out(%16, %17, none)  # layer 0\n"
      "output %18 y\n"
      "output %7 new_k\n"
      "output %11 new_v\n");
}

TEST(SplitHeads, ProjectionsAreThoseOfTheHeads) {
  for (const auto& [query, kv] : {std::pair<int64_t, int64_t>{8, 8}, {8, 2}, {6, 3}, {4, 1}}) {
    const Graph before = attention({.query_heads = query, .kv_heads = kv});
    const Result<Model> model = split(before);
    ASSERT_TRUE(model) << model.error().message;
    const Graph& after = model->methods[0].graph;
    EXPECT_EQ(count(before, Op::kLinear), 4U);
    EXPECT_EQ(count(after, Op::kLinear), static_cast<size_t>(query + 2 * kv + 1));
    EXPECT_EQ(count(after, Op::kSoftmax), static_cast<size_t>(query));
    ASSERT_EQ(after.inputs.size(), before.inputs.size());
    for (size_t i = 0; i < before.inputs.size(); ++i) {
      EXPECT_EQ(after[after.inputs[i]].name, before[before.inputs[i]].name);
      EXPECT_EQ(after[after.inputs[i]].shape, before[before.inputs[i]].shape);
    }
    ASSERT_EQ(after.outputs.size(), before.outputs.size());
    for (size_t i = 0; i < before.outputs.size(); ++i) {
      EXPECT_EQ(after[after.outputs[i]].name, before[before.outputs[i]].name);
      EXPECT_EQ(after[after.outputs[i]].shape, before[before.outputs[i]].shape);
    }
  }
}

TEST(SplitHeads, TheScoresOfOneHeadAreMadeAtATime) {
  const Graph graph = split(attention({.query_heads = 4}))->methods[0].graph;
  std::vector<Op> order;
  for (const Node& node : graph.nodes) {
    if (node.op == Op::kSoftmax || node.op == Op::kBmm) order.push_back(node.op);
  }
  ASSERT_EQ(order.size(), 12U);
  for (size_t i = 0; i < order.size(); ++i) {
    EXPECT_EQ(order[i], i % 3 == 1 ? Op::kSoftmax : Op::kBmm) << i;
  }
}

TEST(SplitHeads, AWeightOfAHeadIsARangeOfRows) {
  const Model before = *bind({{"forward", attention({})}}, weights_for(attention({})), "test");
  const Model after = *split_heads(before);
  EXPECT_EQ(after.weights.find("wq.weight"), nullptr);
  const Recipe& whole = before.weights.find("wq.weight")->recipe;
  for (int64_t head = 0; head < 2; ++head) {
    const Weight* weight = after.weights.find(head_weight_name("wq.weight", head));
    ASSERT_NE(weight, nullptr);
    EXPECT_EQ(weight->name, head == 0 ? "wq.0.weight" : "wq.1.weight");
    EXPECT_EQ(weight->rule, before.weights.find("wq.weight")->rule);
    EXPECT_EQ(weight->recipe.output().shape, (Shape{3, 5}));
    ASSERT_EQ(weight->recipe.pieces.size(), 1U);
    EXPECT_EQ(weight->recipe.pieces[0],
              run_piece(whole.pieces[0].tensor, whole.pieces[0].offset + head * 15, 15));
  }
  EXPECT_EQ(after.weights.find("wo.weight")->recipe, before.weights.find("wo.weight")->recipe);
}

TEST(SplitHeads, OneHeadStaysAsItIs) {
  const Graph before = attention({.query_heads = 1, .kv_heads = 1});
  EXPECT_EQ(to_text(split(before)->methods[0].graph), to_text(before));
}

TEST(SplitHeads, BiasesAndNormsOverAllHeadsAreCutToo) {
  const auto biased = [](GraphBuilder& b, ValueId x) {
    const Dim width = b.graph()[x].shape.back();
    const ValueId y = b.add(x, b.weight("bias" + std::to_string(width.base), {width}));
    return b.mul(y, b.rsqrt(b.mean_last(b.mul(y, y))));
  };
  const Result<Model> model =
      split(attention({.query_heads = 4, .kv_heads = 2, .projected = biased}));
  ASSERT_TRUE(model) << model.error().message;
  const Graph& graph = model->methods[0].graph;
  EXPECT_EQ(count(graph, Op::kLinear), 4U + 2 * 2 + 1);
  EXPECT_EQ(count(graph, Op::kMean), 3U);  // of all heads, as before the split
  EXPECT_EQ(model->weights.find("bias12.3")->recipe.output().shape, (Shape{3}));
  EXPECT_EQ(model->weights.find("bias12"), nullptr);
}

TEST(SplitHeads, WhatCannotBeDividedIsRefusedByName) {
  const auto normed = [](GraphBuilder& b, ValueId x) {
    const Dim width = b.graph()[x].shape.back();
    const std::string name = "norm" + std::to_string(width.base);
    return b.layer_norm(x, b.weight(name + "w", {width}), b.weight(name + "b", {width}), 1e-5);
  };
  EXPECT_EQ(refusal(attention({.projected = normed})),
            "single-head attention: layer 0: aten::native_layer_norm.out cannot be divided into "
            "heads");
  EXPECT_EQ(refusal(tiny_decoder({.layers = 2})),
            "single-head attention: layer 0: llama::custom_sdpa.out cannot be divided into heads");
}

TEST(SplitHeads, ASoftmaxOverHeadsIsRefused) {
  GraphBuilder b(1);
  b.set_layer(0);
  const ValueId x = b.input("x", DType::kF32, {1, 4, heads(3)});
  b.output(b.softmax_last(x), "y");
  EXPECT_EQ(refusal(*b.finish()),
            "single-head attention: layer 0: aten::_softmax.out cannot be divided into heads");
}

TEST(SplitHeads, HeadsThatAreLostOnTheWayAreRefused) {
  GraphBuilder b(1);
  b.set_layer(0);
  const ValueId x = b.input("x", DType::kF32, {heads(3), 4});
  b.output(b.softmax_last(b.topk_last(x, 2).first), "y");
  EXPECT_EQ(refusal(*b.finish()),
            "single-head attention: layer 0: aten::topk.values cannot be divided into heads");
}

TEST(SplitHeads, LayersWithoutAttentionStayAsTheyAre) {
  GraphBuilder b(1);
  b.set_layer(0);
  const ValueId x = b.input("x", DType::kF32, {1, 2, 6});
  const ValueId y = b.linear(x, b.weight("w.weight", {6, 6}));
  const ValueId by_head = b.view(y, {1, 2, heads(2), 3});
  b.output(b.view(b.mean_last(by_head), {1, 2, 2}), "y");
  const Graph before = *b.finish();
  EXPECT_EQ(to_text(split(before)->methods[0].graph), to_text(before));
}

}  // namespace
}  // namespace ferry::graph::split_heads_test
