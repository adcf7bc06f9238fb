// Passes, tested as {before, pass, after}.

#include "graph/passes/passes.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/graph/symbolic_run.h"
#include "tests/graph/tiny_models.h"

namespace ferry::graph::passes_test {
namespace {

Model bound(GraphBuilder& b, DType stored) {
  Graph graph = *b.finish();
  StateDict dict = weights_for(graph, stored);
  return *bind({{"forward", std::move(graph)}}, std::move(dict), "test");
}

// -- bind

TEST(Bind, ReportsEveryMismatchAtOnce) {
  const Graph graph = tiny_decoder({.layers = 1});
  StateDict dict;
  const StateDict complete = weights_for(graph);
  for (Weight weight : complete.weights()) {
    if (weight.name == "output.weight") continue;
    if (weight.name == "layers.0.wk.weight") weight.recipe.output().shape = {8, 9};
    if (weight.name == "layers.0.wq.weight") weight.recipe.source_dtype = DType::kI8;
    ASSERT_TRUE(dict.add(weight).has_value());
  }
  ASSERT_TRUE(dict.add({"extra\n", {}, ""}).has_value());
  const Result<Model> model = bind({{"forward", graph}}, dict, "checkpoint");
  ASSERT_FALSE(model.has_value());
  EXPECT_EQ(model.error().code, ErrorCode::kBadInput);
  EXPECT_EQ(model.error().message, "checkpoint: 4 weights do not fit the model");
  EXPECT_EQ(model.error().details,
            (std::vector<std::string>{
                "weight 'layers.0.wq.weight' is i8, the model wants f32, f16 or bf16",
                "weight 'layers.0.wk.weight' has shape [8, 9], the model wants [8, 8]",
                "missing weight 'output.weight' [16, 8]", "unexpected weight 'extra\\n'"}));
}

TEST(Bind, AnEmptyCheckpointMissesEverything) {
  const Graph graph = tiny_decoder({.layers = 2});
  const Result<Model> model = bind({{"forward", graph}}, {}, "empty");
  ASSERT_FALSE(model.has_value());
  EXPECT_EQ(model.error().details.size(), weights_for(graph).weights().size());
}

TEST(Bind, ABoundModelIsF32Throughout) {
  const Model model = tiny_model({}, DType::kBF16);
  EXPECT_TRUE(validate(model.methods[0].graph).has_value());
  for (const Weight& weight : model.weights.weights()) {
    EXPECT_EQ(weight.recipe.source_dtype, DType::kBF16);
    EXPECT_EQ(weight.recipe.output().dtype, DType::kF32);
  }
}

// -- cast_weights

// The model has a table, a norm and two projections of one activation.
Model projections(DType stored) {
  GraphBuilder b(1);
  const ValueId ids = b.input("ids", DType::kI64, {1, 3});
  const ValueId x = b.embedding(b.weight("table", {9, 4}), ids);
  const ValueId normed = b.mul(x, b.weight("norm", {4}));
  b.set_layer(0);
  const ValueId q = b.linear(normed, b.weight("wq", {4, 4}));
  const ValueId k = b.linear(normed, b.weight("wk", {4, 4}));
  b.probe("embedded", x);
  b.output(b.add(q, k), "out");
  return bound(b, stored);
}

TEST(CastWeights, MatricesAreNarrowAndActivationsAreCastOnce) {
  const Result<Model> model = cast_weights(projections(DType::kF32), WeightDType::kBF16);
  ASSERT_TRUE(model.has_value()) << model.error().message;
  EXPECT_EQ(to_text(model->methods[0].graph),
            "input %0 i64[1,3] ids\n"
            "weight %1 bf16[9,4] table\n"
            "weight %3 f32[4] norm\n"
            "weight %5 bf16[4,4] wq\n"
            "weight %7 bf16[4,4] wk\n"
            "%10 bf16[1,3,4] = aten::embedding.out(%1, %0, -1, false, false)\n"
            "%2 f32[1,3,4] = aten::_to_copy.out(%10, false, none, f32)\n"
            "%4 f32[1,3,4] = aten::mul.out(%2, %3)\n"
            "%11 bf16[1,3,4] = aten::_to_copy.out(%4, false, none, bf16)  # layer 0\n"
            "%12 bf16[1,3,4] = aten::linear.out(%11, %5, none)  # layer 0\n"
            "%6 f32[1,3,4] = aten::_to_copy.out(%12, false, none, f32)  # layer 0\n"
            "%13 bf16[1,3,4] = aten::linear.out(%11, %7, none)  # layer 0\n"
            "%8 f32[1,3,4] = aten::_to_copy.out(%13, false, none, f32)  # layer 0\n"
            "%9 f32[1,3,4] = aten::add.out(%6, %8, 1)  # layer 0\n"
            "output %9 out\n"
            "probe %2 embedded\n");
}

TEST(CastWeights, F32LeavesTheGraphAsItIs) {
  for (DType stored : {DType::kF32, DType::kF16, DType::kBF16}) {
    const Model before = projections(stored);
    const Model after = *cast_weights(before, WeightDType::kF32);
    EXPECT_EQ(to_text(after.methods[0].graph), to_text(before.methods[0].graph));
    for (const Weight& weight : after.weights.weights()) {
      EXPECT_EQ(weight.recipe.output().dtype, DType::kF32);
      EXPECT_EQ(weight.recipe.source_dtype, stored);
    }
  }
}

TEST(CastWeights, KeepIsWhatTheCheckpointHas) {
  const Model model = *cast_weights(projections(DType::kF16), WeightDType::kKeep);
  for (const char* name : {"table", "wq", "wk"}) {
    EXPECT_TRUE(model.weights.find(name)->recipe.is_copy()) << name;
    EXPECT_EQ(model.weights.find(name)->recipe.output().dtype, DType::kF16) << name;
  }
  EXPECT_EQ(model.weights.find("norm")->recipe.output().dtype, DType::kF32);
  const Model plain = *cast_weights(projections(DType::kF32), WeightDType::kKeep);
  EXPECT_EQ(to_text(plain.methods[0].graph), to_text(projections(DType::kF32).methods[0].graph));
}

TEST(CastWeights, ATiedMatrixHasOneDtypeForBothUses) {
  const Model model = *cast_weights(tiny_model({.layers = 1, .tied = true}), WeightDType::kF16);
  const Graph& graph = model.methods[0].graph;
  int uses = 0;
  for (const Node& node : graph.nodes) {
    if (node.op != Op::kEmbedding && node.op != Op::kLinear) continue;
    const size_t matrix = node.op == Op::kEmbedding ? 0 : 1;
    const Value& weight = graph[std::get<ValueId>(node.args[matrix])];
    EXPECT_EQ(weight.dtype, DType::kF16);
    EXPECT_EQ(graph[node.outs[0]].dtype, DType::kF16);
    if (weight.name == "tok_embeddings.weight") ++uses;
  }
  EXPECT_EQ(uses, 2);
}

TEST(CastWeights, OutputsProbesAndStateStayF32) {
  const Model model = *cast_weights(tiny_model(), WeightDType::kBF16);
  for (ValueId id : model.methods[0].graph.outputs)
    EXPECT_EQ(model.methods[0].graph[id].dtype, DType::kF32);
  for (const Probe& probe : model.methods[0].graph.probes) {
    EXPECT_EQ(model.methods[0].graph[probe.value].dtype, DType::kF32);
  }
  for (const Value& value : model.methods[0].graph.values) {
    if (value.origin == Value::Origin::kBuffer) {
      EXPECT_EQ(value.dtype, DType::kF32);
    }
  }
}

TEST(CastWeights, AMatrixThatIsMoreThanThatStaysF32) {
  GraphBuilder b(1);
  const ValueId w = b.weight("w", {4, 4});
  b.output(b.linear(b.mul(w, w), w), "out");
  const Model model = *cast_weights(bound(b, DType::kBF16), WeightDType::kKeep);
  EXPECT_EQ(model.weights.find("w")->recipe.output().dtype, DType::kF32);
  EXPECT_EQ(model.methods[0].graph.nodes.size(), 2U);
}

TEST(CastWeights, ABufferIsCastAgainAfterItWasWritten) {
  for (const bool view : {false, true}) {
    GraphBuilder b(1);
    const ValueId state = b.buffer("state", DType::kF32, {1, 4});
    const ValueId read = view ? b.view(state, {1, 4}) : state;
    const ValueId w = b.weight("w", {4, 4});
    b.copy_into(state, b.linear(read, w));
    b.output(b.linear(read, w), "out");
    const Model before = bound(b, DType::kF16);
    const Model model = *cast_weights(before, WeightDType::kKeep);
    const auto casts = std::ranges::count_if(model.methods[0].graph.nodes, [&](const Node& node) {
      return node.args[0] == Arg(read) && node.op == Op::kToCopy;
    });
    EXPECT_EQ(casts, 2);
  }
}

TEST(CastWeights, AWeightThatIsNotBoundIsOurDefect) {
  Model model = projections(DType::kF32);
  model.weights = {};
  EXPECT_EQ(cast_weights(model, WeightDType::kKeep).error().code, ErrorCode::kInternal);
}

// -- init_buffers

// The buffers are k_cache and k_cache_scale (zero), state (not zero), and pos (its owner wants it
// stored).
Model buffers() {
  GraphBuilder b(1);
  const ValueId x = b.input("x", DType::kF32, {4});
  for (const char* name : {"l.0.k_cache", "l.0.k_cache_scale", "l.0.state", "pos"}) {
    b.copy_into(b.buffer(name, DType::kF32, {4}), x);
  }
  b.output(b.exp(x), "y");
  Graph graph = *b.finish();
  graph.literals.push_back({"ones", 16, [](uint64_t, std::span<std::byte>) {}});
  for (Value& value : graph.values) {
    if (value.name == "l.0.state") value.literal = 0;
    if (value.name == "pos") value.must_store = true;
  }
  return {{{"forward", std::move(graph)}}, {}};
}

std::vector<std::string> stored(const Model& model) {
  std::vector<std::string> out;
  for (const Value& value : model.methods[0].graph.values) {
    if (!value.stored) continue;
    EXPECT_GE(value.literal, 0) << value.name;
    out.push_back(value.name + "=" +
                  model.methods[0].graph.literals[static_cast<size_t>(value.literal)].key);
  }
  return out;
}

TEST(InitBuffers, ModesSelect) {
  using Names = std::vector<std::string>;
  EXPECT_EQ(stored(*init_buffers(buffers(), {BufferInit::kNone})), (Names{"pos=zeros:16"}));
  EXPECT_EQ(stored(*init_buffers(buffers(), {BufferInit::kState})),
            (Names{"l.0.state=ones", "pos=zeros:16"}));
  EXPECT_EQ(stored(*init_buffers(buffers(), {BufferInit::kAll})),
            (Names{"l.0.k_cache=zeros:16", "l.0.k_cache_scale=zeros:16", "l.0.state=ones",
                   "pos=zeros:16"}));
}

TEST(InitBuffers, EqualContentsAreOneLiteral) {
  const Model model = *init_buffers(buffers(), {BufferInit::kAll});
  EXPECT_EQ(model.methods[0].graph.literals.size(), 2U);
  std::vector<std::byte> contents(16, std::byte{1});
  model.methods[0].graph.literals[1].fill(0, contents);
  EXPECT_EQ(contents, std::vector<std::byte>(16));
}

TEST(InitBuffers, NamesMatchTheWholeLastComponent) {
  using Names = std::vector<std::string>;
  EXPECT_EQ(stored(*init_buffers(buffers(), {BufferInit::kNone, {"k_cache"}})),
            (Names{"l.0.k_cache=zeros:16", "pos=zeros:16"}));
  for (const char* name : {"cache", "0.k_cache", "l.0.k_cache", "K_CACHE", "", "x"}) {
    const Result<Model> model = init_buffers(buffers(), {BufferInit::kNone, {name}});
    ASSERT_FALSE(model.has_value()) << name;
    EXPECT_EQ(model.error().code, ErrorCode::kUsage);
  }
}

// -- remove_dead

TEST(RemoveDead, DropsWhatNothingNeeds) {
  GraphBuilder b(1);
  const ValueId x = b.input("x", DType::kF32, {1, 4});
  b.input("unused", DType::kF32, {1});
  const ValueId dead = b.linear(x, b.weight("dead", {4, 4}));
  b.mul(dead, b.scalar(2));
  b.buffer("never_written", DType::kF32, {4});
  const ValueId kept = b.linear(x, b.weight("kept", {4, 4}));
  const ValueId probed = b.mul(kept, b.scalar(3));
  const ValueId state = b.buffer("state", DType::kF32, {1, 4});
  b.copy_into(state, b.exp(kept));
  b.symbol("U", 4, {});
  b.probe("probed", probed);
  b.output(b.split(kept, {1, 3}, 1)[0], "y");
  const Graph graph = remove_dead(*b.finish());
  EXPECT_TRUE(validate(graph).has_value());
  EXPECT_EQ(to_text(graph),
            "input %0 f32[1,4] x\n"
            "input %1 f32[1] unused\n"
            "weight %2 f32[4,4] kept\n"
            "literal %4 f32[] f32:40400000\n"
            "buffer %6 f32[1,4] state\n"
            "%3 f32[1,4] = aten::linear.out(%0, %2, none)\n"
            "%5 f32[1,4] = aten::mul.out(%3, %4)\n"
            "%7 f32[1,4] = aten::exp.out(%3)\n"
            "%6 = aten::copy_(%6, %7, false)\n"
            "%8 f32[1,1], %9 f32[1,3] = aten::split_with_sizes_copy.out(%3, [1, 3], 1)\n"
            "output %8 y\n"
            "probe %5 probed\n");
}

TEST(RemoveDead, KeepsTheValueOfASymbolThatAShapeHas) {
  GraphBuilder b(1);
  const int32_t t = b.symbol("T", 8, {});
  const ValueId x = b.input("x", DType::kF32, {Dim::of(t)});
  b.bind_symbol(t, b.sym_size(x, 0));
  b.output(b.exp(x), "y");
  const Graph graph = remove_dead(*b.finish());
  ASSERT_EQ(graph.symbols.size(), 1U);
  EXPECT_EQ(graph.nodes.size(), 2U);
  EXPECT_TRUE(validate(graph).has_value());
}

TEST(RemoveDead, ChangesNothingThatIsComputed) {
  const Graph before = tiny_decoder({.windowed = true});
  const Graph after = remove_dead(before);
  const Terms inputs = {{"tokens", "tokens"}, {"input_pos", "pos"}};
  EXPECT_EQ(run_symbolically(after, inputs).outputs, run_symbolically(before, inputs).outputs);
  EXPECT_EQ(run_symbolically(after, inputs).state, run_symbolically(before, inputs).state);
  EXPECT_EQ(to_text(remove_dead(after)), to_text(after));
}

}  // namespace
}  // namespace ferry::graph::passes_test
