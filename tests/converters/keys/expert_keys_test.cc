// Keys of experts: stored apart or fused, complete or incomplete.
#include "converters/keys/expert_keys.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "converters/keys/key_rule.h"
#include "tests/converters/names_source.h"

namespace ferry::converters::expert_keys_test {
namespace {

// One layer of three experts of inner size 4, with hidden size 2 and no shared expert.
ModelConfig config() {
  ModelConfig c;
  c.num_layers = 1;
  c.hidden_size = 2;
  c.moe.experts = 3;
  c.moe.expert_size = 4;
  return c;
}

TensorEntry entry(const std::string& name, Shape shape, DType dtype = DType::kBF16) {
  return {.name = "model.layers.0.mlp." + name, .dtype = dtype, .shape = std::move(shape)};
}

std::vector<TensorEntry> up_matrices() {
  return {entry("experts.2.up_proj.weight", {4, 2}), entry("experts.0.up_proj.weight", {4, 2}),
          entry("experts.1.up_proj.weight", {4, 2})};
}

MappedKeys map(std::vector<TensorEntry> entries) {
  const ModelConfig c = config();
  const Names source(std::move(entries));
  return map_keys(source, key_by_name(source), c, expert_rules("model.", c), {}, {}).value();
}

std::vector<std::string> messages(const MappedKeys& mapped) {
  std::vector<std::string> lines;
  for (const KeyProblem& problem : mapped.problems) lines.push_back(problem.message);
  return lines;
}

TEST(ExpertKeys, MatricesAreStackedInTheOrderOfTheirNumbers) {
  const MappedKeys mapped = map(up_matrices());
  EXPECT_EQ(messages(mapped), std::vector<std::string>{});
  const graph::Weight* w3 = mapped.weights.find("layers.0.feed_forward.experts.w3.weight");
  ASSERT_NE(w3, nullptr);
  EXPECT_EQ(w3->recipe.output().shape, (Shape{3, 4, 2}));
  EXPECT_EQ(w3->recipe.pieces, (std::vector<StridedPiece>{run_piece(1, 0, 8), run_piece(2, 0, 8),
                                                          run_piece(0, 0, 8)}));
  EXPECT_EQ(w3->recipe.source_dtype, DType::kBF16);
  // Every source matrix is in the report.
  ASSERT_EQ(mapped.report.entries.size(), 3u);
  for (const MappedEntry& mapped_entry : mapped.report.entries) {
    EXPECT_EQ(mapped_entry.rule, "stack experts w3");
    EXPECT_EQ(mapped_entry.targets, std::vector<std::string>{w3->name});
  }
}

TEST(ExpertKeys, EveryMatrixGoesToItsOwnWeight) {
  ModelConfig c = config();
  c.moe.shared_size = 5;
  std::vector<TensorEntry> entries = {
      entry("gate.weight", {3, 2}), entry("shared_expert.gate_proj.weight", {5, 2}),
      entry("shared_expert.up_proj.weight", {5, 2}),
      entry("shared_expert.down_proj.weight", {2, 5}), entry("shared_expert_gate.weight", {1, 2})};
  for (const std::string e : {"0", "1", "2"}) {
    entries.push_back(entry("experts." + e + ".gate_proj.weight", {4, 2}));
    entries.push_back(entry("experts." + e + ".up_proj.weight", {4, 2}));
    entries.push_back(entry("experts." + e + ".down_proj.weight", {2, 4}));
  }
  const Names source(std::move(entries));
  const MappedKeys mapped =
      map_keys(source, key_by_name(source), c, expert_rules("model.", c), {}, {}).value();
  EXPECT_EQ(messages(mapped), std::vector<std::string>{});
  const struct {
    const char* weight;
    Shape shape;
    std::vector<size_t> entries;
  } kWeights[] = {{"gate", {3, 2}, {0}},
                  {"shared.w1", {5, 2}, {1}},
                  {"shared.w3", {5, 2}, {2}},
                  {"shared.w2", {2, 5}, {3}},
                  {"shared_gate", {1, 2}, {4}},
                  {"experts.w1", {3, 4, 2}, {5, 8, 11}},
                  {"experts.w3", {3, 4, 2}, {6, 9, 12}},
                  {"experts.w2", {3, 2, 4}, {7, 10, 13}}};
  for (const auto& expected : kWeights) {
    const std::string name = std::string("layers.0.feed_forward.") + expected.weight + ".weight";
    const graph::Weight* weight = mapped.weights.find(name);
    ASSERT_NE(weight, nullptr) << name;
    EXPECT_EQ(weight->recipe.output().shape, expected.shape) << name;
    std::vector<size_t> from;
    for (const StridedPiece& piece : weight->recipe.pieces) from.push_back(piece.tensor);
    EXPECT_EQ(from, expected.entries) << name;
  }
}

TEST(ExpertKeys, WhatIsWrongIsNamedByItsOwnKey) {
  std::vector<TensorEntry> entries = up_matrices();
  entries.pop_back();
  EXPECT_EQ(messages(map(entries)),
            std::vector<std::string>{"missing: 'model.layers.0.mlp.experts.1.up_proj.weight' "
                                     "[4, 2] (for layers.0.feed_forward.experts.w3.weight)"});

  entries = up_matrices();
  entries.push_back(entry("experts.3.up_proj.weight", {4, 2}));
  EXPECT_EQ(messages(map(entries)),
            std::vector<std::string>{"unmapped: 'model.layers.0.mlp.experts.3.up_proj.weight' "
                                     "bf16 [4, 2] (the config has 3 experts)"});

  entries = up_matrices();
  entries[2].shape = {2, 4};
  EXPECT_EQ(messages(map(entries)),
            std::vector<std::string>{"shape: 'model.layers.0.mlp.experts.1.up_proj.weight' [2, 4], "
                                     "the config wants [4, 2]"});

  entries = up_matrices();
  entries[2].dtype = DType::kF32;
  EXPECT_EQ(messages(map(entries)),
            std::vector<std::string>{"dtype: 'model.layers.0.mlp.experts.1.up_proj.weight' is f32, "
                                     "but 'model.layers.0.mlp.experts.0.up_proj.weight' is bf16"});

  entries = up_matrices();
  entries[0].name = "model.layers.0.mlp.experts.02.up_proj.weight";
  EXPECT_EQ(map(entries).problems.size(), 2u);  // one unknown and one missing matrix
}

TEST(ExpertKeys, FusedMatricesAreTakenApart) {
  const MappedKeys mapped =
      map({entry("experts.gate_up_proj", {3, 8, 2}), entry("experts.down_proj", {3, 2, 4})});
  EXPECT_EQ(messages(mapped), std::vector<std::string>{});
  const graph::Weight* w1 = mapped.weights.find("layers.0.feed_forward.experts.w1.weight");
  const graph::Weight* w3 = mapped.weights.find("layers.0.feed_forward.experts.w3.weight");
  const graph::Weight* w2 = mapped.weights.find("layers.0.feed_forward.experts.w2.weight");
  ASSERT_TRUE(w1 && w2 && w3);
  for (const graph::Weight* wide : {w1, w3}) {
    EXPECT_EQ(wide->recipe.output().shape, (Shape{3, 4, 2}));
  }
  // A piece covers one half of each of the 3 matrices of 16 elements.
  const auto half = [](int64_t offset) {
    return std::vector<StridedPiece>{{.offset = offset, .axes = {{3, 16}, {8, 1}}}};
  };
  EXPECT_EQ(w1->recipe.pieces, half(0));
  EXPECT_EQ(w3->recipe.pieces, half(8));
  EXPECT_EQ(w2->recipe.output().shape, (Shape{3, 2, 4}));
  ASSERT_EQ(map({entry("experts.down_proj", {3, 4, 2})}).problems.size(), 1u);
  for (const Shape& wrong : {Shape{3, 2, 8}, Shape{2, 8, 2}, Shape{24, 2}, Shape{}}) {
    const MappedKeys refused = map({entry("experts.gate_up_proj", wrong)});
    ASSERT_EQ(refused.problems.size(), 1u);
    EXPECT_EQ(refused.problems[0].kind, KeyProblem::Kind::kShape);
  }
}

TEST(ExpertKeys, FusedAndSingleMatricesTogetherAreDuplicates) {
  std::vector<TensorEntry> entries = up_matrices();
  entries.insert(entries.begin(), entry("experts.gate_up_proj", {3, 8, 2}));
  const MappedKeys fused_first = map(entries);
  EXPECT_EQ(fused_first.problems.size(), 3u);
  std::rotate(entries.begin(), entries.begin() + 1, entries.end());
  const MappedKeys fused_last = map(entries);
  ASSERT_EQ(fused_last.problems.size(), 1u);
  for (const MappedKeys* mapped : {&fused_first, &fused_last}) {
    EXPECT_EQ(mapped->problems[0].kind, KeyProblem::Kind::kDuplicate);
  }
}

TEST(ExpertKeys, AModelWithoutExpertsHasNoRules) {
  EXPECT_TRUE(expert_rules("model.", ModelConfig{}).empty());
}

}  // namespace
}  // namespace ferry::converters::expert_keys_test
