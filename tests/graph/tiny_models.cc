#include "tests/graph/tiny_models.h"

#include <gtest/gtest.h>

namespace ferry::graph {
namespace {

constexpr int64_t kContext = 32;
constexpr int64_t kWindow = 4;

struct Context {
  Dim tokens, keys;
  ValueId start, end, first_key, is_start, cos, mask;
};

Context preamble(GraphBuilder& b, const TinyOptions& options) {
  const int32_t t = b.symbol("T", options.prefill, ValueId{});
  const ValueId tokens = b.input("tokens", DType::kI64, {1, Dim::of(t)});
  const ValueId input_pos = b.input("input_pos", DType::kI64, {1});
  const ValueId count = b.sym_size(tokens, 1);
  b.bind_symbol(t, count);
  Context c;
  c.tokens = Dim::of(t);
  const ValueId position = b.select(input_pos, 0, 0);
  c.start = b.item(position);
  c.end = b.int_add(c.start, count);
  c.is_start = b.eq(position, 0);
  const Literal table = {"cos", static_cast<uint64_t>(kContext * options.width) * sizeof(float),
                         [](uint64_t, std::span<std::byte>) {}};
  c.cos = b.slice(b.literal(DType::kF32, {kContext, options.width}, table), 0, c.start, c.end,
                  c.tokens);
  b.name(c.cos, "rope_cos");
  if (options.windowed) {
    c.first_key = b.int_max(b.int_sub(c.start, kWindow - 1), 0);
    c.keys = Dim::of(b.symbol("W", kWindow - 1 + options.prefill, b.int_sub(c.end, c.first_key)));
    const ValueId rows = b.unsqueeze(b.arange(c.start, c.end, c.tokens), 1);
    const ValueId distance = b.sub(rows, b.arange(c.first_key, c.end, c.keys));
    const ValueId seen = b.logical_and(b.ge(distance, 0), b.lt(distance, kWindow));
    c.mask = b.where(seen, b.scalar(0), b.scalar(-1e4F));
  }
  return c;
}

ValueId layer(GraphBuilder& b, const TinyOptions& options, const Context& c, ValueId x,
              const std::string& name) {
  const int64_t width = options.width;
  const ValueId turned = b.mul(b.mul(x, b.weight(name + ".norm.weight", {width})), c.cos);
  const ValueId q = b.linear(turned, b.weight(name + ".wq.weight", {width, width}));
  const ValueId k = b.linear(turned, b.weight(name + ".wk.weight", {width, width}));
  const ValueId cache = b.buffer(name + ".k_cache", DType::kF32, {1, kContext, 1, width});
  const ValueId state = b.buffer(name + ".state", DType::kF32, {1, width});
  b.update_cache(b.view(k, {1, c.tokens, 1, width}), cache, c.start);
  const ValueId heads = b.view(q, {1, c.tokens, 1, width});
  ValueId out;
  if (options.windowed) {
    const ValueId keys = b.slice(cache, 1, c.first_key, c.end, c.keys);
    out = b.sdpa_masked(heads, keys, keys, c.mask);
  } else {
    out = b.sdpa(heads, cache, cache, c.start);
  }
  out = b.view(out, {1, c.tokens, width});
  const ValueId past = b.where(c.is_start, b.scalar(0), state);
  b.copy_into(state, b.select(out, 1, -1));
  return b.add(b.add(x, out), past);
}

}  // namespace

Graph tiny_decoder(const TinyOptions& options) {
  GraphBuilder b(static_cast<int32_t>(options.layers));
  const Context c = preamble(b, options);
  const ValueId table = b.weight("tok_embeddings.weight", {options.vocabulary, options.width});
  ValueId x = b.embedding(table, b.graph().inputs[0]);
  b.probe("hidden_states.0", x);
  for (int64_t i = 0; i < options.layers; ++i) {
    b.set_layer(static_cast<int32_t>(i));
    x = layer(b, options, c, x, "layers." + std::to_string(i));
    b.name(x, "hidden_states");
    b.probe("hidden_states." + std::to_string(i + 1), x);
  }
  b.set_layer(static_cast<int32_t>(options.layers));
  const ValueId head =
      options.tied ? table : b.weight("output.weight", {options.vocabulary, options.width});
  b.output(b.linear(x, head), "logits");
  Result<Graph> graph = b.finish();
  EXPECT_TRUE(graph.has_value()) << graph.error().message;
  return graph ? *graph : Graph{};
}

StateDict weights_for(const Graph& graph, DType stored) {
  StateDict dict;
  size_t entry = 0;
  for (const Value& value : graph.values) {
    if (value.origin != Value::Origin::kWeight) continue;
    Recipe recipe{.source_dtype = stored, .outputs = {{.dtype = stored}}};
    int64_t count = 1;
    for (const Dim& dim : value.shape) {
      recipe.output().shape.push_back(dim.base);
      count *= dim.base;
    }
    recipe.pieces = {run_piece(entry++, 0, count)};
    EXPECT_TRUE(dict.add({value.name, recipe, "rename"}).has_value());
  }
  return dict;
}

Model tiny_model(const TinyOptions& options, DType stored) {
  Graph graph = tiny_decoder(options);
  StateDict dict = weights_for(graph, stored);
  Result<Model> model = bind({{"forward", std::move(graph)}}, std::move(dict), "tiny");
  EXPECT_TRUE(model.has_value()) << model.error().message;
  return model ? *model : Model{};
}

}  // namespace ferry::graph
