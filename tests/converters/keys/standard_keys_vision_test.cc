// The keys of vision-language checkpoints in the layouts that they are saved in.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "converters/assemble.h"
#include "converters/family.h"
#include "core/program_interface.h"
#include "tests/converters/family_fixture.h"
#include "tests/converters/names_source.h"

namespace ferry::converters::standard_keys_vision_test {
namespace {

Assembled assembled(const Names& source, const ModelConfig& config) {
  return assemble(source, key_by_name(source), config, {.context_length = 64, .prefill_length = 16},
                  {})
      .value();
}

// Replaces the prefix `from` of names with `to`.
void rename(std::vector<TensorEntry>& entries, const std::string& from, const std::string& to) {
  for (TensorEntry& entry : entries) {
    if (entry.name.starts_with(from)) entry.name = to + entry.name.substr(from.size());
  }
}

std::set<std::string> weights_of(const Assembled& made) {
  std::set<std::string> names;
  for (const AssembledComponent& component : made.components) {
    for (const graph::Weight& weight : component.model.weights.weights()) {
      names.insert(component.role + " " + weight.name);
    }
  }
  return names;
}

const graph::Recipe& recipe_of(const Assembled& made, const std::string& weight) {
  for (const AssembledComponent& component : made.components) {
    if (const graph::Weight* found = component.model.weights.find(weight)) return found->recipe;
  }
  ADD_FAILURE() << weight;
  static const graph::Recipe kNone;
  return kNone;
}

class VisionKeys : public testing::TestWithParam<std::string> {};

TEST_P(VisionKeys, EveryKeyIsMappedAndEveryComponentHasItsWeights) {
  const ModelConfig config = family_config(GetParam(), /*images=*/true);
  const Names source(family_tensors(GetParam()));
  const Assembled made = assembled(source, config);
  ASSERT_TRUE(made.problems.empty()) << made.problems[0].message;
  // Behind the entries of the source are those of ties.
  EXPECT_GE(made.report.entries.size(), source.entries().size());
  for (const MappedEntry& entry : made.report.entries) {
    EXPECT_FALSE(entry.targets.empty()) << entry.source;
  }
  ASSERT_EQ(made.components.size(), 3u);
  EXPECT_EQ(made.components[0].role, kVisionEncoderRole);
  EXPECT_EQ(made.components[1].role, kTokenEmbeddingRole);
  EXPECT_EQ(made.components[2].role, kTextDecoderRole);
  for (const AssembledComponent& component : made.components) {
    for (const graph::Weight& weight : component.model.weights.weights()) {
      EXPECT_EQ(weight.name.starts_with("vision."), component.role == kVisionEncoderRole)
          << weight.name;
    }
  }
  EXPECT_EQ(made.components[1].model.weights.weights().size(), 1u);
}

TEST_P(VisionKeys, ALayerBeyondThoseOfTheTowerIsAnUnknownKey) {
  const ModelConfig config = family_config(GetParam(), /*images=*/true);
  std::vector<TensorEntry> entries = family_tensors(GetParam());
  std::vector<std::string> beyond;
  for (const TensorEntry& entry : family_tensors(GetParam())) {
    const size_t at = entry.name.find(".1.");
    if (entry.name.find("vision") == std::string::npos || at == std::string::npos) continue;
    TensorEntry extra = entry;
    extra.name.replace(at, 3, ".2.");
    beyond.push_back(extra.name);
    entries.push_back(extra);
  }
  ASSERT_GE(beyond.size(), 10u);
  const Names source(entries);
  const Assembled made = assembled(source, config);
  std::vector<std::string> problems;
  for (const KeyProblem& problem : made.problems) {
    EXPECT_EQ(problem.kind, KeyProblem::Kind::kUnmapped) << problem.message;
    problems.push_back(problem.key);
  }
  std::ranges::sort(problems);
  std::ranges::sort(beyond);
  EXPECT_EQ(problems, beyond);
}

// The config states more layers than the checkpoint has. Each missing key is listed.
TEST_P(VisionKeys, ALayerThatIsMissingIsListed) {
  ModelConfig config = family_config(GetParam(), /*images=*/true);
  config.vision->num_layers = 3;
  const Names source(family_tensors(GetParam()));
  const Assembled made = assembled(source, config);
  EXPECT_GE(made.problems.size(), 12u);
  for (const KeyProblem& problem : made.problems) {
    EXPECT_EQ(problem.kind, KeyProblem::Kind::kMissing) << problem.message;
    EXPECT_NE(problem.key.find(".2."), std::string::npos) << problem.message;
    EXPECT_NE(problem.key.find("vision"), std::string::npos) << problem.message;
  }
}

INSTANTIATE_TEST_SUITE_P(Layouts, VisionKeys,
                         testing::Values("smolvlm", "gemma3_images", "gemma4_images",
                                         "internvl3_hf", "internvl3_opengvlab", "lfm2_vl_images"),
                         [](const auto& test) { return test.param; });

TEST(VisionKeyLayouts, BothLayoutsOfInternVlAndTheNamesInMemoryGiveTheSameWeights) {
  const Names saved(family_tensors("internvl3_hf"));
  const Names chat(family_tensors("internvl3_opengvlab"));
  std::vector<TensorEntry> in_memory = family_tensors("internvl3_hf");
  rename(in_memory, "language_model.lm_head.", "lm_head.");
  rename(in_memory, "language_model.model.", "model.language_model.");
  rename(in_memory, "vision_tower.", "model.vision_tower.");
  rename(in_memory, "multi_modal_projector.", "model.multi_modal_projector.");
  const Names memory(in_memory);
  const ModelConfig config = family_config("internvl3_hf");
  const Assembled made = assembled(memory, config);
  ASSERT_TRUE(made.problems.empty()) << made.problems[0].message;
  const std::set<std::string> expected = weights_of(assembled(saved, config));
  EXPECT_EQ(weights_of(made), expected);
  EXPECT_EQ(weights_of(assembled(chat, family_config("internvl3_opengvlab"))), expected);
}

// Released checkpoints have one more name in front of the tower's keys, and may have a pooling
// head.
void expect_released_names(const std::string& family, const std::string& tower) {
  const ModelConfig config = family_config(family, /*images=*/true);
  const Names saved(family_tensors(family));
  std::vector<TensorEntry> released = family_tensors(family);
  rename(released, tower, tower + "vision_model.");
  TensorEntry head = released.front();
  head.name = tower + "vision_model.head.probe";
  released.push_back(head);
  const Names source(released);
  const Assembled made = assembled(source, config);
  ASSERT_TRUE(made.problems.empty()) << made.problems[0].message;
  EXPECT_EQ(weights_of(made), weights_of(assembled(saved, config)));
}

TEST(VisionKeyLayouts, NamesOfReleasedGemma3GiveTheSameWeights) {
  expect_released_names("gemma3_images", "vision_tower.");
}

// As in memory, keys are below "model.", and the head is not.
void expect_names_in_memory(const std::string& family) {
  const ModelConfig config = family_config(family);
  const Names saved(family_tensors(family));
  std::vector<TensorEntry> in_memory = family_tensors(family);
  rename(in_memory, "language_model.lm_head.", "lm_head.");
  rename(in_memory, "language_model.model.", "model.language_model.");
  for (const char* prefix : {"vision_tower.", "multi_modal_projector.", "image_newline"}) {
    rename(in_memory, prefix, "model." + std::string(prefix));
  }
  const Names memory(in_memory);
  const Assembled made = assembled(memory, config);
  ASSERT_TRUE(made.problems.empty()) << made.problems[0].message;
  EXPECT_EQ(weights_of(made), weights_of(assembled(saved, config)));
}

TEST(VisionKeyLayouts, NamesOfReleasedLlavaAndThoseInMemoryGiveTheSameWeights) {
  for (const char* family :
       {"llava_images", "llava_next_images", "llava_onevision_images", "granite_vision_images"}) {
    SCOPED_TRACE(family);
    expect_released_names(family, "vision_tower.");
    expect_names_in_memory(family);
  }
}

TEST(VisionKeyLayouts, NamesOfReleasedLfm2VlGiveTheSameWeights) {
  expect_released_names("lfm2_vl_images", "model.vision_tower.");
}

// A checkpoint that has a tensor under the names of both layouts has neither layout.
TEST(VisionKeyLayouts, MixedLayoutsAreRefused) {
  std::vector<TensorEntry> entries = family_tensors("internvl3_hf");
  TensorEntry twice = entries.front();
  for (const TensorEntry& entry : entries) {
    if (entry.name == "vision_tower.embeddings.cls_token") twice = entry;
  }
  twice.name = "model.vision_tower.embeddings.cls_token";
  entries.push_back(twice);
  const Names source(entries);
  const Assembled made = assembled(source, family_config("internvl3_hf"));
  ASSERT_FALSE(made.problems.empty());
  EXPECT_EQ(made.problems[0].kind, KeyProblem::Kind::kDuplicate) << made.problems[0].message;
}

// attn.qkv has the rows [q | k | v]: rows 0 to 31 are wq, 32 to 63 wk, 64 to 95 wv.
TEST(VisionKeyLayouts, ThePackedProjectionIsCutInOrder) {
  const std::vector<TensorEntry> entries = family_tensors("internvl3_opengvlab");
  const Names source(entries);
  const Assembled made = assembled(source, family_config("internvl3_opengvlab"));
  ASSERT_TRUE(made.problems.empty()) << made.problems[0].message;
  const auto index_of = [&](const std::string& name) {
    return static_cast<size_t>(std::ranges::find(entries, name, &TensorEntry::name) -
                               entries.begin());
  };
  const std::string parts[] = {"wq", "wk", "wv"};
  for (const std::string layer : {"0", "1"}) {
    for (int64_t part = 0; part < 3; ++part) {
      const std::string name = "vision.layers." + layer + ".attention." + parts[part];
      const std::string key = "vision_model.encoder.layers." + layer + ".attn.qkv";
      EXPECT_EQ(recipe_of(made, name + ".weight").pieces,
                (std::vector{run_piece(index_of(key + ".weight"), part * 32 * 32, 32 * 32)}));
      EXPECT_EQ(recipe_of(made, name + ".bias").pieces,
                (std::vector{run_piece(index_of(key + ".bias"), part * 32, 32)}));
    }
  }
}

TEST(VisionKeyLayouts, APackedProjectionOfAnotherHeightIsRefused) {
  std::vector<TensorEntry> entries = family_tensors("internvl3_opengvlab");
  for (TensorEntry& entry : entries) {
    if (entry.name == "vision_model.encoder.layers.1.attn.qkv.weight") entry.shape[0] = 64;
  }
  const Names source(entries);
  const Assembled made = assembled(source, family_config("internvl3_opengvlab"));
  ASSERT_EQ(made.problems.size(), 1u);
  EXPECT_EQ(made.problems[0].kind, KeyProblem::Kind::kShape);
  EXPECT_EQ(made.problems[0].key, "vision_model.encoder.layers.1.attn.qkv.weight");
  EXPECT_NE(made.problems[0].message.find("96"), std::string::npos) << made.problems[0].message;
}

// The product of the sizes is right here, but the kernel has another shape than the config states.
TEST(VisionKeyLayouts, TheKernelOfThePatchesIsThatOfTheConfig) {
  for (const Shape& shape : {Shape{48, 4, 4, 3}, Shape{48, 3, 2, 8}, Shape{48, 48}}) {
    std::vector<TensorEntry> entries = family_tensors("smolvlm");
    for (TensorEntry& entry : entries) {
      if (entry.name.ends_with("patch_embedding.weight")) entry.shape = shape;
    }
    const Names source(entries);
    const Assembled made = assembled(source, family_config("smolvlm"));
    ASSERT_EQ(made.problems.size(), 1u) << to_string(shape);
    EXPECT_EQ(made.problems[0].key, "model.vision_model.embeddings.patch_embedding.weight");
  }
}

}  // namespace
}  // namespace ferry::converters::standard_keys_vision_test
