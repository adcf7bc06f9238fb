// Several methods in one program: what they share and must agree on. Every pass treats all methods
// alike.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "graph/lower.h"
#include "graph/passes/passes.h"
#include "tests/graph/lowered.h"
#include "tests/graph/tiny_models.h"

namespace ferry::graph::method_builder_test {
namespace {

// Methods for calls of up to 8 tokens, and of one token.
std::vector<MethodGraph> two_methods(TinyOptions options = {}) {
  std::vector<MethodGraph> methods = {{"forward", tiny_decoder(options)}};
  options.prefill = 1;
  methods.push_back({"decode", tiny_decoder(options)});
  return methods;
}

LoweredProgram lowered_methods(const std::vector<MethodGraph>& methods) {
  return lowered(methods, {{"get_max_seq_len", {int64_t{8}}}});
}

TEST(Methods, ShareWeightsLiteralsAndBuffers) {
  const std::vector<MethodGraph> methods = two_methods();
  const LoweredProgram both = lowered_methods(methods);
  const LoweredProgram alone = lowered_methods({methods[0]});
  ASSERT_EQ(both.program.methods.size(), 3u);
  EXPECT_EQ(both.program.methods[0], alone.program.methods[0]);
  EXPECT_EQ(both.program.methods[1].name, "decode");
  EXPECT_EQ(both.program.methods[2], alone.program.methods[1]);
  EXPECT_EQ(both.weights, alone.weights);
  EXPECT_EQ(both.sizes.constants, alone.sizes.constants);
  EXPECT_EQ(both.state_bytes, alone.state_bytes);

  ASSERT_EQ(both.methods.size(), 2u);
  ASSERT_EQ(both.methods[0].buffers.size(), 8u);
  for (size_t i = 0; i < both.methods[0].buffers.size(); ++i) {
    const LoweredBuffer& first = both.methods[0].buffers[i];
    const LoweredBuffer& second = both.methods[1].buffers[i];
    EXPECT_EQ(first.name, second.name);
    EXPECT_EQ(tensor(both.program.methods[0], first.value).allocation,
              tensor(both.program.methods[1], second.value).allocation);
  }
  const auto& forward_memory = both.program.methods[0].memory_bytes;
  const auto& decode_memory = both.program.methods[1].memory_bytes;
  EXPECT_EQ(forward_memory[2], decode_memory[2]);
  EXPECT_LT(decode_memory[1], forward_memory[1]);
  EXPECT_EQ(both.methods[1].activation_bytes, decode_memory[1]);
  EXPECT_EQ(both.methods[1].inputs[0].shape, (Shape{1, 1}));
}

// Each method has a buffer of its own beside the shared one.
TEST(Methods, BuffersOfAllMethodsAreInOneMemory) {
  const auto method = [](const std::string& name, const std::vector<std::string>& buffers) {
    GraphBuilder b(1);
    const ValueId x = b.input("x", DType::kF32, {2, 3});
    for (const std::string& buffer : buffers) {
      const ValueId state = b.buffer(buffer, DType::kF32, {2, 3});
      b.copy_into(state, b.add(state, x));
      b.output(b.add(state, x), buffer + ".sum");
    }
    return MethodGraph{name, *b.finish()};
  };
  const LoweredProgram program =
      lowered_methods({method("one", {"shared", "first"}), method("two", {"second", "shared"})});
  std::map<std::string, std::set<uint64_t>> offsets;
  for (size_t m = 0; m < 2; ++m) {
    for (const LoweredBuffer& buffer : program.methods[m].buffers) {
      offsets[buffer.name].insert(
          tensor(program.program.methods[m], buffer.value).allocation->offset);
    }
    EXPECT_EQ(program.program.methods[m].memory_bytes[2], program.state_bytes);
  }
  using Offsets = std::map<std::string, std::set<uint64_t>>;
  EXPECT_EQ(offsets, (Offsets{{"shared", {0}}, {"first", {32}}, {"second", {64}}}));
  EXPECT_EQ(program.state_bytes, 88u);
}

TEST(Methods, StoredContentsAreSharedToo) {
  Model model = {two_methods(), {}};
  model = *init_buffers(std::move(model), {.mode = BufferInit::kAll});
  const LoweredProgram both = lowered_methods(model.methods);
  const LoweredProgram alone = lowered_methods({model.methods[0]});
  EXPECT_EQ(both.sizes.initial, alone.sizes.initial);
  EXPECT_EQ(both.sizes.initial.size(), 3u);  // zeros of a cache and of a state
  for (const LoweredBuffer& buffer : both.methods[1].buffers) EXPECT_GT(buffer.initial, 0u);
}

struct Disagreement {
  const char* name;
  void (*change)(std::vector<MethodGraph>&);
  const char* message;
};

Value& named(Graph& graph, const std::string& name) {
  return *std::ranges::find(graph.values, name, &Value::name);
}

Graph graph_with_table(int64_t size) {
  GraphBuilder b(1);
  const Literal table = {"table", static_cast<uint64_t>(size) * sizeof(float),
                         [](uint64_t, std::span<std::byte>) {}};
  b.output(b.exp(b.literal(DType::kF32, {size}, table)), "out");
  return *b.finish();
}

const Disagreement kDisagreements[] = {
    {"weight shape",
     [](std::vector<MethodGraph>& m) { m[1].graph = tiny_decoder({.vocabulary = 17}); },
     "'tok_embeddings.weight' is a weight f32 [16, 8] in method 'forward' and a weight f32 [17, 8] "
     "in method 'decode'"},
    {"buffer contents",
     [](std::vector<MethodGraph>& m) {
       Model model = *init_buffers({{m[1]}, {}}, {.mode = BufferInit::kNone, .names = {"state"}});
       m[1] = model.methods[0];
     },
     "'layers.0.state' is a buffer f32 [1, 8] without stored contents in method 'forward' and a "
     "buffer f32 [1, 8] with stored contents 'zeros:32' in method 'decode'"},
    {"literal size",
     [](std::vector<MethodGraph>& m) {
       m[0].graph = graph_with_table(16);
       m[1].graph = graph_with_table(32);
     },
     "'table' is a literal of 64 bytes in method 'forward' and a literal of 128 bytes in method "
     "'decode'"},
    {"method name", [](std::vector<MethodGraph>& m) { m[1].name = "forward"; },
     "two methods are named 'forward'"},
};

TEST(Methods, DisagreementsNameBothMethods) {
  for (const Disagreement& disagreement : kDisagreements) {
    std::vector<MethodGraph> methods = two_methods();
    disagreement.change(methods);
    const auto program = lower(methods, {});
    ASSERT_FALSE(program) << disagreement.name;
    EXPECT_EQ(program.error().code, ErrorCode::kInternal) << disagreement.name;
    EXPECT_EQ(program.error().message, disagreement.message);
  }
}

// -- passes

Model bound(std::vector<MethodGraph> methods, DType stored = DType::kF32) {
  StateDict weights = weights_for(methods[0].graph, stored);
  auto model = graph::bind(std::move(methods), std::move(weights), "tiny");
  EXPECT_TRUE(model) << model.error().message;
  return model ? *model : Model{};
}

TEST(Methods, BindWantsTheWeightsOfEachMethodOnce) {
  std::vector<MethodGraph> methods = two_methods();
  const StateDict weights = weights_for(methods[0].graph);
  EXPECT_TRUE(graph::bind({methods[1]}, weights, "tiny"));
  methods[0].graph = tiny_decoder({.layers = 1});  // only the second method has the later layers
  EXPECT_TRUE(graph::bind(methods, weights, "tiny"));
  const auto missing = graph::bind(two_methods(), {}, "tiny");
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().details.size(), weights.weights().size());
}

TEST(Methods, AreCastAlike) {
  const auto cast = cast_weights(bound(two_methods()), WeightDType::kBF16);
  ASSERT_TRUE(cast) << cast.error().message;
  EXPECT_EQ(cast->weights.find("layers.0.wq.weight")->recipe.output().dtype, DType::kBF16);
  for (const MethodGraph& method : cast->methods) {
    Graph graph = method.graph;
    EXPECT_EQ(named(graph, "layers.0.wq.weight").dtype, DType::kBF16) << method.name;
    EXPECT_EQ(named(graph, "layers.0.norm.weight").dtype, DType::kF32) << method.name;
  }
  lowered_methods(cast->methods);
}

TEST(Methods, WeightThatOneMethodKeepsInF32StaysSoInAll) {
  std::vector<MethodGraph> methods = two_methods();
  named(methods[1].graph, "layers.0.wq.weight").keep_f32 = true;
  const auto cast = cast_weights(bound(std::move(methods)), WeightDType::kBF16);
  ASSERT_TRUE(cast) << cast.error().message;
  EXPECT_EQ(cast->weights.find("layers.0.wq.weight")->recipe.output().dtype, DType::kF32);
  for (const MethodGraph& method : cast->methods) {
    Graph graph = method.graph;
    EXPECT_EQ(named(graph, "layers.0.wq.weight").dtype, DType::kF32) << method.name;
  }
  lowered_methods(cast->methods);
}

TEST(Methods, AreCutAtTheSameLayers) {
  const Model whole = bound(two_methods());
  for (const int32_t count : {1, 2, 3, 4}) {
    const auto parts = shard(whole, count);
    ASSERT_TRUE(parts) << parts.error().message;
    const auto alone = shard({{whole.methods[0]}, whole.weights}, count);
    ASSERT_TRUE(alone);
    for (size_t i = 0; i < parts->size(); ++i) {
      const Model& part = (*parts)[i];
      ASSERT_EQ(part.methods.size(), 2u);
      EXPECT_EQ(part.methods[1].name, "decode");
      EXPECT_EQ(to_text(part.methods[0].graph), to_text((*alone)[i].methods[0].graph));
      EXPECT_EQ(part.weights.weights().size(), (*alone)[i].weights.weights().size());
      const LoweredProgram program = lowered_methods(part.methods);
      EXPECT_EQ(program.methods[0].buffers.size(), program.methods[1].buffers.size());
    }
  }
}

TEST(Methods, WithUnequalLayersAreNotCut) {
  std::vector<MethodGraph> methods = two_methods();
  methods[1].graph = tiny_decoder({.layers = 3});
  Model model = bound(std::move(methods));
  const auto parts = shard(model, 2);
  ASSERT_FALSE(parts);
  EXPECT_EQ(parts.error().message, "shard: method 'forward' has 4 layers, method 'decode' has 3");
}

TEST(Methods, BufferThatMethodsUseInDifferentLayersIsNotCut) {
  std::vector<MethodGraph> methods = two_methods();
  for (Value& value : methods[1].graph.values) {
    if (value.origin == Value::Origin::kBuffer) {
      value.name = value.name.starts_with("layers.0")   ? "layers.3" + value.name.substr(8)
                   : value.name.starts_with("layers.3") ? "layers.0" + value.name.substr(8)
                                                        : value.name;
    }
  }
  const auto parts = shard(bound(std::move(methods)), 2);
  ASSERT_FALSE(parts);
  EXPECT_NE(parts.error().message.find("is used in two parts"), std::string::npos);
}

}  // namespace
}  // namespace ferry::graph::method_builder_test
