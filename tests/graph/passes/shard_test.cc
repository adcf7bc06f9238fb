// Shards of a decoder: every layer is in one part, the parts together compute what the whole
// computes, and the interfaces name everything that crosses a cut.

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "graph/passes/layer_partition.h"
#include "graph/passes/passes.h"
#include "tests/graph/symbolic_run.h"
#include "tests/graph/tiny_models.h"

namespace ferry::graph::shard_test {
namespace {

std::vector<Model> cut(const Model& model, int32_t count) {
  Result<std::vector<Model>> parts = shard(model, count);
  EXPECT_TRUE(parts.has_value()) << parts.error().message;
  return parts ? *parts : std::vector<Model>{};
}

std::vector<std::string> names(const Graph& graph, const std::vector<ValueId>& ids) {
  std::vector<std::string> out;
  for (ValueId id : ids) out.push_back(graph[id].name);
  return out;
}

// Runs the parts in order, as a bundle does: an input is the latest output of its name.
SymbolicRun run_parts(const std::vector<Model>& parts, Terms values) {
  SymbolicRun all;
  for (const Model& part : parts) {
    SymbolicRun run = run_symbolically(part.methods[0].graph, values);
    for (const auto& [name, term] : run.outputs) values[name] = term;
    all.outputs = std::move(run.outputs);
    all.probes.merge(run.probes);
    all.state.merge(run.state);
    EXPECT_TRUE(run.probes.empty() && run.state.empty()) << "made by two parts";
  }
  return all;
}

const Terms kInputs = {{"tokens", "tokens"}, {"input_pos", "input_pos"}};

TEST(Shard, PartsComputeWhatTheWholeComputes) {
  for (const bool windowed : {false, true}) {
    for (const bool tied : {false, true}) {
      const Model whole = tiny_model({.layers = 5, .windowed = windowed, .tied = tied});
      const SymbolicRun expected = run_symbolically(whole.methods[0].graph, kInputs);
      ASSERT_EQ(expected.outputs.size(), 1U);
      ASSERT_EQ(expected.probes.size(), 6U);
      for (int32_t count = 1; count <= 5; ++count) {
        const std::vector<Model> parts = cut(whole, count);
        ASSERT_EQ(parts.size(), static_cast<size_t>(count));
        const SymbolicRun run = run_parts(parts, kInputs);
        EXPECT_EQ(run.outputs.at("logits"), expected.outputs.at("logits")) << count;
        EXPECT_EQ(run.probes, expected.probes) << count;
        EXPECT_EQ(run.state, expected.state) << count;
      }
    }
  }
}

TEST(Shard, CastsAreCutLikeEverythingElse) {
  const Model whole = *cast_weights(tiny_model({.windowed = true}), WeightDType::kBF16);
  const std::vector<Model> parts = cut(whole, 3);
  const SymbolicRun expected = run_symbolically(whole.methods[0].graph, kInputs);
  EXPECT_EQ(run_parts(parts, kInputs).outputs.at("logits"), expected.outputs.at("logits"));
}

TEST(Shard, EachLayerIsInOnePart) {
  const std::vector<Model> parts = cut(tiny_model({.layers = 7}), 3);
  int32_t next = 0;
  for (const Model& part : parts) {
    std::set<int32_t> layers;
    for (const Node& node : part.methods[0].graph.nodes) {
      if (node.layer >= 0 && node.layer < 7) layers.insert(node.layer);
    }
    ASSERT_FALSE(layers.empty());
    EXPECT_EQ(*layers.begin(), next);
    EXPECT_EQ(static_cast<int32_t>(layers.size()), *layers.rbegin() - next + 1);
    next = *layers.rbegin() + 1;
    EXPECT_EQ(part.methods[0].graph.num_layers, 7);
  }
  EXPECT_EQ(next, 7);
}

TEST(Shard, InterfacesNameWhatCrosses) {
  const std::vector<Model> parts = cut(tiny_model({.layers = 3}), 3);
  using Names = std::vector<std::string>;
  EXPECT_EQ(names(parts[0].methods[0].graph, parts[0].methods[0].graph.inputs),
            (Names{"tokens", "input_pos"}));
  EXPECT_EQ(names(parts[0].methods[0].graph, parts[0].methods[0].graph.outputs),
            (Names{"rope_cos", "hidden_states"}));
  EXPECT_EQ(names(parts[1].methods[0].graph, parts[1].methods[0].graph.inputs),
            (Names{"hidden_states", "rope_cos", "input_pos"}));
  EXPECT_EQ(names(parts[1].methods[0].graph, parts[1].methods[0].graph.outputs),
            (Names{"hidden_states"}));
  EXPECT_EQ(names(parts[2].methods[0].graph, parts[2].methods[0].graph.inputs),
            (Names{"hidden_states", "rope_cos", "input_pos"}));
  EXPECT_EQ(names(parts[2].methods[0].graph, parts[2].methods[0].graph.outputs), (Names{"logits"}));
}

TEST(Shard, UnnamedValuesCrossUnderTheNameOfTheCut) {
  const std::vector<Model> parts = cut(tiny_model({.layers = 2, .windowed = true}), 2);
  EXPECT_EQ(names(parts[1].methods[0].graph, parts[1].methods[0].graph.inputs),
            (std::vector<std::string>{"hidden_states", "rope_cos", "cut0.0", "input_pos"}));
}

TEST(Shard, PortsKeepDtypeAndSize) {
  const std::vector<Model> parts = cut(tiny_model({.layers = 3, .windowed = true}), 3);
  std::map<std::string, const Value*> known;
  std::map<std::string, std::vector<int64_t>> sizes;
  for (const Model& part : parts) {
    const auto sizes_of = [&](const Value& value) {
      std::vector<int64_t> out;
      for (const Dim& dim : value.shape) out.push_back(part.methods[0].graph.max_of(dim));
      return out;
    };
    for (ValueId id : part.methods[0].graph.inputs) {
      const Value& input = part.methods[0].graph[id];
      const auto found = known.find(input.name);
      if (found == known.end()) continue;
      EXPECT_EQ(found->second->dtype, input.dtype) << input.name;
      EXPECT_EQ(sizes.at(input.name), sizes_of(input)) << input.name;
    }
    for (ValueId id : part.methods[0].graph.outputs) {
      known[part.methods[0].graph[id].name] = &part.methods[0].graph[id];
      sizes[part.methods[0].graph[id].name] = sizes_of(part.methods[0].graph[id]);
    }
  }
  EXPECT_EQ(known.size(), 4U);  // rope_cos, the mask, hidden_states and logits
}

TEST(Shard, LaterPartsTakeTheTokenCountFromTheHiddenState) {
  const std::vector<Model> parts = cut(tiny_model({.layers = 2}), 2);
  const Graph& graph = parts[1].methods[0].graph;
  ASSERT_EQ(graph.symbols.size(), 1U);
  const Value& hidden = graph[graph.inputs[0]];
  EXPECT_EQ(hidden.shape, (Dims{1, Dim::of(0), 8}));
  const bool from_hidden = std::ranges::any_of(graph.nodes, [&](const Node& node) {
    return node.op == Op::kSymSize && node.outs[0] == graph.symbols[0].value &&
           node.args[0] == Arg(graph.inputs[0]);
  });
  EXPECT_TRUE(from_hidden);
}

TEST(Shard, EachPartHasItsWeights) {
  const Model whole = tiny_model({.layers = 4, .tied = true});
  std::map<std::string, int> uses;
  for (const Model& part : cut(whole, 2)) {
    for (const Value& value : part.methods[0].graph.values) {
      if (value.origin == Value::Origin::kWeight) {
        EXPECT_NE(part.weights.find(value.name), nullptr) << value.name;
      }
    }
    for (const Weight& weight : part.weights.weights()) ++uses[weight.name];
  }
  EXPECT_EQ(uses.size(), whole.weights.weights().size());
  for (const auto& [name, count] : uses) {
    EXPECT_EQ(count, name == "tok_embeddings.weight" ? 2 : 1) << name;
  }
}

// x is made in layer 0 and read in layers 1 and 2. In layer 1, y of the same name replaces it.
Model skipping_model() {
  GraphBuilder b(3);
  const ValueId in = b.input("x", DType::kF32, {1, 4});
  b.set_layer(0);
  const ValueId x = b.exp(in);
  b.name(x, "state");
  b.set_layer(1);
  const ValueId y = b.sigmoid(x);
  b.name(y, "state");
  b.set_layer(2);
  b.output(b.add(b.view(x, {1, 4}), y), "out");
  return {{{"forward", *b.finish()}}, {}};
}

TEST(Shard, ANameIsNotTakenWhileALaterPartStillNeedsIt) {
  const Model whole = skipping_model();
  const std::vector<Model> parts = cut(whole, 3);
  const SymbolicRun run = run_parts(parts, {{"x", "x"}});
  EXPECT_EQ(run.outputs.at("out"),
            run_symbolically(whole.methods[0].graph, {{"x", "x"}}).outputs.at("out"));
  EXPECT_EQ(names(parts[1].methods[0].graph, parts[1].methods[0].graph.outputs),
            (std::vector<std::string>{"state.2"}));
  EXPECT_EQ(parts[2].methods[0].graph.inputs.size(), 2U);
}

TEST(Shard, AViewIsMadeAgainBehindTheCut) {
  GraphBuilder b(2);
  const ValueId in = b.input("x", DType::kF32, {1, 4});
  b.set_layer(0);
  const ValueId flat = b.view(b.exp(in), {4});
  b.set_layer(1);
  b.output(b.sigmoid(flat), "out");
  const std::vector<Model> parts = cut({{{"forward", *b.finish()}}, {}}, 2);
  EXPECT_EQ(parts[1].methods[0].graph[parts[1].methods[0].graph.inputs[0]].shape, (Dims{1, 4}));
  EXPECT_EQ(parts[1].methods[0].graph.nodes[0].op, Op::kView);
  EXPECT_EQ(parts[0].methods[0].graph.nodes.size(), 1U);
}

TEST(Shard, ABufferUsedInTwoPartsIsRefused) {
  GraphBuilder b(2);
  const ValueId state = b.buffer("state", DType::kF32, {1, 4});
  b.set_layer(0);
  b.copy_into(state, b.exp(b.input("x", DType::kF32, {1, 4})));
  b.set_layer(1);
  b.output(b.exp(state), "out");
  const Result<std::vector<Model>> parts = shard({{{"forward", *b.finish()}}, {}}, 2);
  ASSERT_FALSE(parts.has_value());
  EXPECT_NE(parts.error().message.find("'state'"), std::string::npos);
}

TEST(Shard, TheNumberOfPartsIsFromOneToTheNumberOfLayers) {
  const Model model = tiny_model({.layers = 3});
  for (int32_t count : {-1, 0, 4, 1000}) {
    const Result<std::vector<Model>> parts = shard(model, count);
    ASSERT_FALSE(parts.has_value()) << count;
    EXPECT_EQ(parts.error().code, ErrorCode::kUsage);
  }
  EXPECT_EQ(cut(model, 1).size(), 1U);
}

// -- where to cut

uint64_t largest_part(const std::vector<uint64_t>& costs, const std::vector<int32_t>& bounds) {
  uint64_t largest = 0;
  for (size_t p = 0; p + 1 < bounds.size(); ++p) {
    uint64_t sum = 0;
    for (int32_t i = bounds[p]; i < bounds[p + 1]; ++i) sum += costs[static_cast<size_t>(i)];
    largest = std::max(largest, sum);
  }
  return largest;
}

// Returns the smallest possible size of the largest part, by trying all cuts.
uint64_t best_by_search(const std::vector<uint64_t>& costs, size_t begin, int32_t count) {
  if (count == 1) {
    uint64_t sum = 0;
    for (size_t i = begin; i < costs.size(); ++i) sum += costs[i];
    return sum;
  }
  uint64_t best = UINT64_MAX, sum = 0;
  for (size_t end = begin + 1; end + static_cast<size_t>(count) - 1 <= costs.size(); ++end) {
    sum += costs[end - 1];
    best = std::min(best, std::max(sum, best_by_search(costs, end, count - 1)));
  }
  return best;
}

TEST(LayerPartition, TheLargestPartIsAsSmallAsPossible) {
  uint64_t random = 7;
  for (int round = 0; round < 200; ++round) {
    std::vector<uint64_t> costs;
    for (int i = 0; i < 2 + round % 7; ++i) {
      random = random * 6364136223846793005U + 1442695040888963407U;
      costs.push_back(random >> (i == 0 ? 50 : 54));
    }
    for (int32_t count = 1; count <= static_cast<int32_t>(costs.size()); ++count) {
      const std::vector<int32_t> bounds = partition_layers(costs, count);
      ASSERT_EQ(bounds.size(), static_cast<size_t>(count) + 1);
      EXPECT_EQ(bounds.front(), 0);
      EXPECT_EQ(bounds.back(), static_cast<int32_t>(costs.size()));
      EXPECT_TRUE(std::ranges::is_sorted(bounds));
      EXPECT_EQ(std::ranges::adjacent_find(bounds), bounds.end()) << "an empty part";
      EXPECT_EQ(largest_part(costs, bounds), best_by_search(costs, 0, count));
    }
  }
}

TEST(LayerPartition, EqualLayersAreDealtEvenly) {
  EXPECT_EQ(partition_layers({5, 5, 5, 5, 5, 5}, 3), (std::vector<int32_t>{0, 2, 4, 6}));
  EXPECT_EQ(partition_layers({0, 0, 0}, 3), (std::vector<int32_t>{0, 1, 2, 3}));
}

}  // namespace
}  // namespace ferry::graph::shard_test
