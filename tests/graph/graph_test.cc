// Graphs as text, bounds of symbols, and the damage that validation finds.
#include "graph/graph.h"

#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <utility>

#include "graph/builder.h"
#include "graph/dims.h"
#include "tests/graph/tiny_models.h"

namespace ferry::graph::graph_test {
namespace {

constexpr int64_t kEnd = std::numeric_limits<int64_t>::max();

TEST(Graph, TextHasOneLinePerValueAndNode) {
  GraphBuilder b(2);
  const int32_t t = b.symbol("T", 8, {});
  const ValueId tokens = b.input("tokens", DType::kI64, {1, Dim::of(t)});
  b.bind_symbol(t, b.sym_size(tokens, 1));
  b.set_layer(0);
  const ValueId x = b.embedding(b.weight("tok.weight", {16, 4}), tokens);
  const ValueId state = b.buffer("state", DType::kF32, {1, 4});
  b.copy_into(state, b.select(x, 1, -1));
  b.set_layer(1);
  const ValueId y = b.view(b.cat({x, b.mul(x, 2.0)}, 2), {1, Dim::of(t), 2, 4});
  b.probe("middle", x);
  b.output(b.add(y, b.scalar(1)), "out");
  EXPECT_EQ(to_text(*b.finish()),
            "symbol T <= 8 = %1\n"
            "input %0 i64[1,T] tokens\n"
            "weight %2 f32[16,4] tok.weight\n"
            "buffer %4 f32[1,4] state\n"
            "literal %9 f32[] f32:3f800000\n"
            "%1 int = aten::sym_size.int(%0, 1)\n"
            "%3 f32[1,T,4] = aten::embedding.out(%2, %0, -1, false, false)  # layer 0\n"
            "%5 f32[1,4] = aten::select_copy.int_out(%3, 1, -1)  # layer 0\n"
            "%4 = aten::copy_(%4, %5, false)  # layer 0\n"
            "%6 f32[1,T,4] = aten::mul.Scalar_out(%3, 2.0)  # layer 1\n"
            "%7 f32[1,T,8] = aten::cat.out({%3, %6}, 2)  # layer 1\n"
            "%8 f32[1,T,2,4] = executorch_prim::et_view.default(%7, [1, %1, 2, 4])  # layer 1\n"
            "%10 f32[1,T,2,4] = aten::add.out(%8, %9, 1)  # layer 1\n"
            "output %10 out\n"
            "probe %3 middle\n");
}

TEST(Graph, BoundsFollowTheSymbols) {
  const Graph graph = tiny_decoder();
  EXPECT_EQ(graph.max_of(Dim::of(0)), 8);
  EXPECT_EQ(graph.max_of(Dim::of(0, 2, 3)), 19);
  EXPECT_EQ(graph.max_of(Dim(5)), 5);
  EXPECT_EQ(graph.max_bytes(graph.outputs[0]), 8U * 16 * 4);
}

// -- validate

struct Damage {
  const char* what;
  std::function<void(Graph&)> apply;
};

TEST(Validate, FindsEveryDamage) {
  const Graph sound = tiny_decoder({.layers = 2, .windowed = true});
  ASSERT_TRUE(validate(sound).has_value());
  const auto find = [&](Op op) {
    size_t i = 0;
    while (sound.nodes[i].op != op) ++i;
    return i;
  };
  const size_t linear = find(Op::kLinear);
  const size_t copy = find(Op::kCopy);
  const size_t cache = find(Op::kUpdateCache);
  const std::vector<Damage> damages = {
      {"shape", [&](Graph& g) { g[g.nodes[linear].outs[0]].shape.back() = 9; }},
      {"dtype", [&](Graph& g) { g[g.nodes[linear].outs[0]].dtype = DType::kF16; }},
      {"kind", [&](Graph& g) { g[g.nodes[linear].outs[0]].kind = Value::Kind::kInt; }},
      {"use before definition", [&](Graph& g) { std::swap(g.nodes[linear], g.nodes.back()); }},
      {"node removed", [&](Graph& g) { g.nodes.erase(g.nodes.begin() + 5); }},
      {"defined twice", [&](Graph& g) { g.nodes.push_back(g.nodes[linear]); }},
      {"argument out of range", [&](Graph& g) { g.nodes[linear].args[0] = ValueId{10000}; }},
      {"argument of another kind", [&](Graph& g) { g.nodes[linear].args[0] = IntArg(1); }},
      {"argument missing", [&](Graph& g) { g.nodes[linear].args.pop_back(); }},
      {"argument too many", [&](Graph& g) { g.nodes[linear].args.emplace_back(true); }},
      {"no out", [&](Graph& g) { g.nodes[linear].outs.clear(); }},
      {"out out of range", [&](Graph& g) { g.nodes[linear].outs[0] = ValueId{-7}; }},
      {"writes a weight",
       [&](Graph& g) { g.nodes[linear].outs[0] = std::get<ValueId>(g.nodes[linear].args[1]); }},
      {"copies into a node's value",
       [&](Graph& g) {
         const ValueId source = std::get<ValueId>(g.nodes[copy].args[1]);
         g.nodes[copy].args[0] = source;
         g.nodes[copy].outs[0] = source;
       }},
      {"cache is no buffer",
       [&](Graph& g) {
         g[std::get<ValueId>(g.nodes[cache].args[1])].origin = Value::Origin::kWeight;
       }},
      {"layer", [&](Graph& g) { g.nodes[linear].layer = 3; }},
      {"unknown symbol", [&](Graph& g) { g[g.inputs[0]].shape[1] = Dim::of(7); }},
      {"negative size", [&](Graph& g) { g[g.inputs[1]].shape[0] = -1; }},
      {"more bytes than a number holds",
       [&](Graph& g) { g[g.inputs[1]].shape[0] = int64_t{1} << 61; }},
      {"more tokens than a number holds", [&](Graph& g) { g.symbols[0].max = kEnd; }},
      {"symbol without bound", [&](Graph& g) { g.symbols[0].max = 0; }},
      {"symbol of a tensor", [&](Graph& g) { g.symbols[0].value = g.inputs[0]; }},
      {"input twice", [&](Graph& g) { g.inputs.push_back(g.inputs[0]); }},
      {"input forgotten", [&](Graph& g) { g.inputs.pop_back(); }},
      {"input that is none", [&](Graph& g) { g.inputs.push_back(g.outputs[0]); }},
      {"name taken", [&](Graph& g) { g[g.inputs[0]].name = "layers.0.k_cache"; }},
      {"output out of range", [&](Graph& g) { g.outputs.push_back({10000}); }},
      {"probe out of range",
       [&](Graph& g) {
         g.probes.push_back({"x", {}});
       }},
      {"output that is an integer", [&](Graph& g) { g.outputs[0] = g.symbols[0].value; }},
      {"literal missing", [&](Graph& g) { g.literals.pop_back(); }},
      {"literal of another size", [&](Graph& g) { g.literals[0].bytes += 4; }},
      {"dynamic weight",
       [&](Graph& g) { g[std::get<ValueId>(g.nodes[linear].args[1])].shape[0] = Dim::of(0); }},
  };
  for (const Damage& damage : damages) {
    Graph graph = sound;
    damage.apply(graph);
    const Status status = validate(graph);
    ASSERT_FALSE(status.has_value()) << damage.what;
    EXPECT_EQ(status.error().code, ErrorCode::kInternal);
    EXPECT_TRUE(status.error().message.starts_with("graph: ")) << status.error().message;
  }
}

}  // namespace
}  // namespace ferry::graph::graph_test
