// The table of families, and a family that is added to it by one FamilySpec.
#include "converters/family.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "converters/assemble.h"
#include "converters/blocks/decoder.h"
#include "converters/config/json_fields.h"
#include "converters/keys/standard_keys.h"
#include "tests/converters/names_source.h"

namespace ferry::converters::family_test {
namespace {

using nlohmann::json;

TEST(FamilyTable, EveryTypeHasOneFamilyAndItsDefaultsAreAnObject) {
  std::set<std::string_view> names, wrappers;
  for (const FamilySpec* family : all_families()) {
    ASSERT_FALSE(family->types.empty());
    for (const ModelType& type : family->types) {
      EXPECT_TRUE(names.insert(type.name).second) << type.name;
      wrappers.insert(type.wrapper.name);  // several types may have one wrapper
      EXPECT_TRUE(json::parse(type.defaults, nullptr, false).is_object()) << type.name;
      EXPECT_EQ(find_family(all_families(), type.name)->type, &type);
    }
    ASSERT_FALSE(family->components.empty()) << family->name();
    // A family of sound alone has an audio encoder in its place.
    const ModelType& first = family->types.front();
    const bool hears = !first.part.key.empty() && first.source_part.key.empty();
    EXPECT_EQ(family->text_decoder().role, hears ? "audio_encoder" : "text_decoder");
    EXPECT_FALSE(family->text_decoder().prefixes.empty()) << family->name();
  }
  for (const std::string_view wrapper : wrappers) EXPECT_FALSE(names.contains(wrapper)) << wrapper;
  EXPECT_EQ(find_family(all_families(), ""), std::nullopt);
}

TEST(FamilyTable, EveryVisionTypeHasOneFamilyAndTextDecodersThatExist) {
  std::set<std::string_view> names, wrappers;
  for (const VisionFamily* family : all_vision_families()) {
    for (const VisionType& type : family->types) {
      EXPECT_TRUE(names.insert(type.name).second) << type.name;
      EXPECT_EQ(find_family(all_families(), type.name).has_value(), type.by_choice) << type.name;
      EXPECT_EQ(find_vision_family(type.name)->type, &type);
      EXPECT_TRUE(json::parse(type.defaults, nullptr, false).is_object()) << type.name;
      EXPECT_TRUE(json::parse(type.vision_defaults, nullptr, false).is_object()) << type.name;
      EXPECT_EQ(std::ranges::count(family->text_types, type.text_type), 1) << type.name;
      EXPECT_EQ(std::ranges::count(supported_types(all_families()), type.name), 1) << type.name;
    }
    for (const std::string_view text : family->text_types) {
      EXPECT_TRUE(find_family(all_families(), text)) << text;
    }
  }
  EXPECT_EQ(find_vision_family("siglip"), std::nullopt);
}

TEST(FamilyTable, AWrapperHasTheFamilyOfItsTextDecoder) {
  const std::optional<FamilyMatch> match = find_family(all_families(), "qwen3_5_moe");
  ASSERT_TRUE(match);
  EXPECT_TRUE(match->multimodal);
  EXPECT_EQ(match->type->name, "qwen3_5_moe_text");
  EXPECT_EQ(match->family->name(), "qwen3_5_text");
}

TEST(FamilyTable, AnUnknownTypeIsAnErrorThatNamesTheFileAndTheNearestTypes) {
  const auto config = parse_model_config(R"({"model_type": "albert"})", "", "dir/other.json");
  ASSERT_FALSE(config);
  EXPECT_EQ(config.error().code, ErrorCode::kUnsupported);
  EXPECT_EQ(config.error().message,
            "dir/other.json: 'model_type' is 'albert': not supported; supported are " +
                nearest_types(all_families(), "albert"));
}

TEST(FamilyTable, TheNearestTypesBeginAlike) {
  const std::string near = nearest_types(all_families(), "qwen3_next_moe");
  EXPECT_TRUE(near.starts_with("qwen3_next, ")) << near;
  EXPECT_EQ(std::ranges::count(near, ','), 4) << near;
  EXPECT_TRUE(near.ends_with(fmt::format(" and {} more (docs/families.md lists them)",
                                         supported_types(all_families()).size() - 5)))
      << near;
  EXPECT_LT(nearest_types(all_families(), std::string(100'000, 'q')).size(), 200U);
}

void expect_distinct_sources(const ModelConfig& config) {
  std::set<std::string> sources;
  for (const KeyRule& rule : key_rules(config)) {
    const std::string layout = rule.layout ? packed_layout_name(*rule.layout) : "";
    EXPECT_TRUE(sources.insert(rule.source + " " + layout).second)
        << family_name(config) << " " << rule.source;
  }
}

// Otherwise two keys of one checkpoint could match rules of the same source.
TEST(FamilyTable, NoTwoRulesOfAFamilyHaveTheSameSource) {
  ModelConfig config;
  config.num_layers = 1;
  config.layer_types = {LayerType::kMamba};
  config.num_heads = config.num_kv_heads = config.head_dim = config.hidden_size = 8;
  config.audio.emplace().conformer.emplace().convolutions = 3;
  config.source.emplace().num_layers = 1;
  for (const FamilySpec* family : all_families()) {
    config.family = family;
    expect_distinct_sources(config);
  }
  config.audio.reset();
  config.source.reset();
  config.vision.emplace();
  config.vision->hidden_size = config.vision->patch_size = config.vision->num_layers = 1;
  config.vision->any_shape.emplace().deepstack = {0};
  for (const VisionFamily* family : all_vision_families()) {
    config.vision_family = family;
    config.family = find_family(all_families(), family->text_types.front())->family;
    expect_distinct_sources(config);
  }
}

// -- a family of this test: Llama with embeddings that are multiplied by a number of its own, in
// checkpoints with one of two prefixes and with a part that Ferry leaves out.

Status read_doubling(const JsonFields& fields, ModelConfig& config) {
  config.numbers["doublings"] = FERRY_TRY(fields.required("doublings", kLayerRange));
  config.scalars.embedding = static_cast<double>(int64_t{1} << config.number("doublings"));
  return {};
}

std::vector<KeyRule> doubling_rules(const ModelConfig& config, const std::string& prefix) {
  return llama_rules(config, prefix);
}

const FamilySpec kDoubling = {
    .types = {{.name = "doubling",
               .wrapper = {.name = "doubling_vl", .tied = true},
               .defaults = R"({"vocab_size": 16, "hidden_size": 8, "intermediate_size": 12,
                               "num_hidden_layers": 1, "num_attention_heads": 2,
                               "max_position_embeddings": 32})",
               .names = {{"num_hidden_layers", {"depth"}}},
               .read = read_doubling}},
    .components = {{.prefixes = {"model.", "decoder."},
                    .heads = {"head.weight"},
                    .rules = doubling_rules,
                    .build = build_llama}},
    .dropped = {{"vision.*", "only the text decoder is built"}}};

constexpr const FamilySpec* kTestFamilies[] = {&kDoubling};

std::vector<TensorEntry> doubling_entries(const std::string& prefix) {
  const std::string layer = prefix + "layers.0.";
  return {{.name = prefix + "embed_tokens.weight", .dtype = DType::kF32, .shape = {16, 8}},
          {.name = layer + "self_attn.q_proj.weight", .dtype = DType::kF32, .shape = {8, 8}},
          {.name = layer + "self_attn.k_proj.weight", .dtype = DType::kF32, .shape = {8, 8}},
          {.name = layer + "self_attn.v_proj.weight", .dtype = DType::kF32, .shape = {8, 8}},
          {.name = layer + "self_attn.o_proj.weight", .dtype = DType::kF32, .shape = {8, 8}},
          {.name = layer + "mlp.gate_proj.weight", .dtype = DType::kF32, .shape = {12, 8}},
          {.name = layer + "mlp.up_proj.weight", .dtype = DType::kF32, .shape = {12, 8}},
          {.name = layer + "mlp.down_proj.weight", .dtype = DType::kF32, .shape = {8, 12}},
          {.name = layer + "input_layernorm.weight", .dtype = DType::kF32, .shape = {8}},
          {.name = layer + "post_attention_layernorm.weight", .dtype = DType::kF32, .shape = {8}},
          {.name = prefix + "norm.weight", .dtype = DType::kF32, .shape = {8}},
          {.name = "head.weight", .dtype = DType::kF32, .shape = {16, 8}},
          {.name = "vision.patches", .dtype = DType::kI64, .shape = {3}}};
}

Result<ModelConfig> parse_doubling(const char* text) {
  return parse_model_config(text, "", "config.json", nullptr, kTestFamilies);
}

TEST(AddedFamily, IsFoundAndItsConfigIsReadWithItsTraits) {
  const auto config = parse_doubling(R"({"model_type": "doubling", "depth": 2, "doublings": 3})");
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->family, &kDoubling);
  EXPECT_EQ(config->hidden_size, 8);  // a default
  EXPECT_EQ(config->num_layers, 2);   // the config states it under another name
  EXPECT_EQ(config->number("doublings"), 3);
  EXPECT_EQ(config->scalars.embedding, 8.0);
  EXPECT_EQ(parse_doubling(R"({"model_type": "doubling"})").error().message,
            "config.json: 'doublings' is missing");
  EXPECT_EQ(parse_doubling(R"({"model_type": "llama"})").error().message,
            "config.json: 'model_type' is 'llama': not supported; supported are doubling, "
            "doubling_vl");
  const auto wrapped =
      parse_doubling(R"({"model_type": "doubling_vl", "text_config": {"doublings": 1}})");
  ASSERT_TRUE(wrapped) << wrapped.error().message;
  EXPECT_TRUE(wrapped->multimodal && wrapped->tie_word_embeddings);
}

TEST(AddedFamily, ItsCheckpointsBecomeModelsUnderEachPrefix) {
  const ModelConfig config =
      parse_doubling(R"({"model_type": "doubling", "doublings": 3})").value();
  for (const std::string prefix : {"model.", "decoder.", ""}) {
    const Names source(doubling_entries(prefix));
    const auto made = assemble(source, key_by_name(source), config,
                               {.context_length = 8, .prefill_length = 4}, {});
    ASSERT_TRUE(made) << made.error().message;
    ASSERT_TRUE(made->problems.empty()) << made->problems[0].message;
    EXPECT_EQ(made->components.front().model.weights.weights().size(), 12u);
    EXPECT_EQ(made->report.entries.back().reason, "only the text decoder is built");
  }
  std::vector<TensorEntry> entries = doubling_entries("decoder.");
  entries.erase(entries.begin());
  const Names source(entries);
  const auto made =
      assemble(source, key_by_name(source), config, {.context_length = 8, .prefill_length = 4}, {});
  ASSERT_EQ(made->problems.size(), 1u);
  EXPECT_EQ(made->problems[0].key, "decoder.embed_tokens.weight");
}

}  // namespace
}  // namespace ferry::converters::family_test
