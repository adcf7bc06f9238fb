// Routed experts as nodes of a graph, and as the loop of a program.
#include "graph/experts.h"

#include <gtest/gtest.h>

#include <set>

#include "graph/builder.h"
#include "graph/lower.h"
#include "graph/passes/passes.h"
#include "tests/graph/lowered.h"

namespace ferry::graph::experts_test {
namespace {

constexpr int64_t kHidden = 64, kInner = 32, kChosen = 2, kTokens = 8;

// Makes a graph of experts between an embedding and the output.
Result<Graph> graph_of(int64_t experts) {
  GraphBuilder b(1);
  const int32_t t = b.symbol("T", kTokens, {});
  const ValueId tokens = b.input("tokens", DType::kI64, {1, Dim::of(t)});
  b.bind_symbol(t, b.sym_size(tokens, 1));
  b.set_layer(0);
  const ValueId x =
      b.view(b.embedding(b.weight("tok", {16, kHidden}), tokens), {Dim::of(t), kHidden});
  const ValueId router = b.linear(x, b.weight_f32("router", {experts, kHidden}));
  const auto [scores, ids] = b.topk_last(b.softmax_last(router), kChosen);
  const ValueId w1 = b.weight("w1", {experts, kInner, kHidden});
  const ValueId w3 = b.weight("w3", {experts, kInner, kHidden});
  const ValueId w2 = b.weight("w2", {experts, kHidden, kInner});
  b.output(b.experts(x, ids, scores, w1, w3, w2), "out");
  return b.finish();
}

Model model_of(int64_t experts, DType stored = DType::kF32) {
  Model model{{{"forward", graph_of(experts).value()}}, {}};
  for (const Value& value : model.methods[0].graph.values) {
    if (value.origin != Value::Origin::kWeight) continue;
    Recipe recipe{.source_dtype = stored};
    for (const Dim& dim : value.shape) recipe.output().shape.push_back(dim.base);
    EXPECT_TRUE(model.weights.add({.name = value.name, .recipe = recipe, .rule = ""}));
  }
  return model;
}

TEST(Experts, BecomeOneLoop) {
  const LoweredProgram program = lowered(model_of(4).methods);
  const pte::Method& m = program.program.methods[0];
  std::vector<size_t> jumps, moves;
  for (size_t i = 0; i < m.instructions.size(); ++i) {
    if (std::holds_alternative<pte::JumpFalseCall>(m.instructions[i])) jumps.push_back(i);
    if (std::holds_alternative<pte::MoveCall>(m.instructions[i])) moves.push_back(i);
  }
  ASSERT_EQ(jumps.size(), 1u);
  ASSERT_EQ(moves.size(), 1u);
  const auto& jump = std::get<pte::JumpFalseCall>(m.instructions[jumps[0]]);
  const auto& move = std::get<pte::MoveCall>(m.instructions[moves[0]]);
  EXPECT_EQ(std::get<int64_t>(m.values[static_cast<size_t>(move.from)]), 0);
  EXPECT_GT(static_cast<size_t>(jump.destination), moves[0]);
  EXPECT_LT(static_cast<size_t>(jump.destination), jumps[0]);
  // The counter is set to zero before the loop and not inside of it, and the constant zero is
  // another value.
  EXPECT_NE(move.from, move.to);
  const auto& last = std::get<pte::KernelCall>(m.instructions[jumps[0] - 1]);
  EXPECT_EQ(m.operators[static_cast<size_t>(last.op)].full_name(), "executorch_prim::ge.Scalar");
  EXPECT_EQ(last.args, (std::vector<int32_t>{move.to, last.args[1], jump.condition}));
}

TEST(Experts, OnlyOperatorsOfTheRuntimeAreCalled) {
  const LoweredProgram program = lowered(model_of(4).methods);
  for (const pte::Operator& op : program.program.methods[0].operators) {
    EXPECT_NE(pte::find_op_schema(op.full_name()), nullptr) << op.full_name();
  }
}

TEST(Experts, MemoryDoesNotGrowWithTheirNumber) {
  constexpr uint64_t kMatrix = kHidden * kInner * sizeof(float);
  const LoweredProgram few = lowered(model_of(4).methods);
  const LoweredProgram many = lowered(model_of(32).methods);
  EXPECT_GE(few.methods[0].activation_bytes, kMatrix);
  EXPECT_LT(many.methods[0].activation_bytes, few.methods[0].activation_bytes + kMatrix);
}

TEST(Experts, MatricesAreStoredAsAskedAndTheRouterIsNot) {
  const auto cast = cast_weights(model_of(4), WeightDType::kBF16);
  ASSERT_TRUE(cast) << cast.error().message;
  for (const char* name : {"w1", "w2", "w3", "tok"}) {
    EXPECT_EQ(cast->weights.find(name)->recipe.output().dtype, DType::kBF16) << name;
  }
  EXPECT_EQ(cast->weights.find("router")->recipe.output().dtype, DType::kF32);
  // Casts are inside the loop, and a matrix of an expert takes half the memory.
  const pte::Method m = lowered(cast->methods).program.methods[0];
  std::set<std::string> names;
  for (const pte::Operator& op : m.operators) names.insert(op.full_name());
  EXPECT_TRUE(names.contains("aten::_to_copy.out"));
}

TEST(Experts, ShapesThatDoNotFitAreOurDefect) {
  const auto finished = [](Dims ids, Dims w1, Dims w2) {
    GraphBuilder b(1);
    const ValueId x = b.input("x", DType::kF32, {3, 8});
    const ValueId chosen = b.input("ids", DType::kI64, ids);
    const ValueId scores = b.input("scores", DType::kF32, ids);
    b.output(
        b.experts(x, chosen, scores, b.weight("w1", w1), b.weight("w3", w1), b.weight("w2", w2)),
        "out");
    return b.finish();
  };
  EXPECT_TRUE(finished({3, 2}, {4, 5, 8}, {4, 8, 5}));
  EXPECT_FALSE(finished({2, 2}, {4, 5, 8}, {4, 8, 5}));  // another number of tokens
  EXPECT_FALSE(finished({3, 5}, {4, 5, 8}, {4, 8, 5}));  // more experts than there are
  EXPECT_FALSE(finished({3, 2}, {4, 5, 7}, {4, 7, 5}));  // another hidden size
  EXPECT_FALSE(finished({3, 2}, {4, 5, 8}, {4, 5, 8}));  // not transposed
  EXPECT_FALSE(finished({3, 2}, {4, 5, 8}, {3, 8, 5}));  // other experts
  EXPECT_FALSE(finished({3, 2}, {20, 8}, {8, 20}));
}

TEST(Experts, BiasesComeTogetherAndFit) {
  const auto finished = [](Dims b1, Dims b3, Dims b2) {
    GraphBuilder b(1);
    const ValueId x = b.input("x", DType::kF32, {3, 8});
    const ValueId ids = b.input("ids", DType::kI64, {3, 2});
    const ValueId scores = b.input("scores", DType::kF32, {3, 2});
    const auto bias = [&](const char* name, const Dims& shape) {
      return shape.empty() ? ValueId{} : b.weight(name, shape);
    };
    const ValueId w1 = b.weight("w1", {4, 5, 8}), w3 = b.weight("w3", {4, 5, 8});
    const ValueId w2 = b.weight("w2", {4, 8, 5});
    b.output(b.experts(x, ids, scores, w1, w3, w2,
                       {.b1 = bias("b1", b1),
                        .b3 = bias("b3", b3),
                        .b2 = bias("b2", b2),
                        .steepness = 1.702,
                        .limit = 7.0}),
             "out");
    return b.finish();
  };
  EXPECT_TRUE(finished({4, 5}, {4, 5}, {4, 8}));
  EXPECT_TRUE(finished({}, {}, {}));
  EXPECT_FALSE(finished({4, 5}, {4, 5}, {}));
  EXPECT_FALSE(finished({}, {4, 5}, {4, 8}));
  EXPECT_FALSE(finished({4, 5}, {4, 5}, {4, 5}));
  EXPECT_FALSE(finished({4, 8}, {4, 5}, {4, 8}));
}

TEST(Gather, TakesElementsOfTheLastDimension) {
  const auto shape = [](Dims of, Dims index, DType dtype) -> Result<Dims> {
    GraphBuilder b(1);
    const ValueId x = b.input("x", DType::kF32, std::move(of));
    const ValueId out = b.gather_last(x, b.input("index", dtype, std::move(index)));
    b.output(out, "out");
    const Graph graph = FERRY_TRY(b.finish());
    return graph[graph.outputs[0]].shape;
  };
  EXPECT_EQ(shape({3, 8}, {3, 2}, DType::kI64).value(), (Dims{3, 2}));
  EXPECT_EQ(shape({3, 4, 8}, {3, 4, 9}, DType::kI64).value(), (Dims{3, 4, 9}));
  EXPECT_FALSE(shape({3, 8}, {2, 2}, DType::kI64));
  EXPECT_FALSE(shape({3, 8}, {2}, DType::kI64));
  EXPECT_FALSE(shape({3, 8}, {3, 2}, DType::kI32));
}

}  // namespace
}  // namespace ferry::graph::experts_test
