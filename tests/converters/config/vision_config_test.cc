// Configs of vision-language models: the keys of each layout, defaults, and refusals that name the
// key.
#include "converters/config/model_config.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "converters/family.h"
#include "core/file.h"

namespace ferry::converters::vision_config_test {
namespace {

using nlohmann::json;

json config_of(const std::string& path) {
  return json::parse(read_text_file(FERRY_TESTDATA "/" + path, 1 << 20).value());
}
json smolvlm() { return config_of("families/smolvlm/config.json"); }
json internvl() { return config_of("families/internvl3_hf/config.json"); }
json opengvlab() { return config_of("families/internvl3_opengvlab/config.json"); }

Result<ModelConfig> parse(const json& config, const json& change = json::object()) {
  json changed = config;
  changed.merge_patch(change);
  return parse_model_config(changed.dump(), "", "config.json");
}

VisionConfig vision_of(const json& config, const json& change = json::object()) {
  const auto parsed = parse(config, change);
  EXPECT_TRUE(parsed) << parsed.error().message;
  return parsed && parsed->vision ? *parsed->vision : VisionConfig();
}

TEST(VisionConfig, OfSmolVlm) {
  const auto config = parse(smolvlm());
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->model_type, "smolvlm");
  EXPECT_EQ(config->text_type, "llama");
  EXPECT_FALSE(config->tie_word_embeddings);
  EXPECT_EQ(family_name(*config), "smolvlm");
  const VisionConfig expected = {.hidden_size = 48,
                                 .intermediate_size = 96,
                                 .num_layers = 2,
                                 .num_heads = 4,
                                 .image_size = 32,
                                 .patch_size = 4,
                                 .shuffle = 2,
                                 .activation = Activation::kGeluTanh,
                                 .final_norm = true,
                                 .image_token_id = 358,
                                 .connector_bias = false};
  EXPECT_EQ(*config->vision, expected);
  EXPECT_EQ(expected.head_dim(), 12);
  EXPECT_EQ(expected.patches(), 64);
  EXPECT_EQ(expected.patch_values(), 48);
  EXPECT_EQ(expected.image_tokens(), 16);
  EXPECT_EQ(expected.shuffled_size(), 192);
}

TEST(VisionConfig, OfInternVlInBothLayouts) {
  VisionConfig expected = {.hidden_size = 32,
                           .intermediate_size = 64,
                           .num_layers = 2,
                           .num_heads = 4,
                           .image_size = 32,
                           .patch_size = 4,
                           .shuffle = 2,
                           .activation = Activation::kGelu,
                           .class_token = true,
                           .drops_first = true,
                           .layer_scale = true,
                           .connector = Connector::kMlp,
                           .image_token_id = 385};
  EXPECT_EQ(vision_of(internvl()), expected);
  expected.image_token_id = std::nullopt;  // OpenGVLab's config does not state it
  expected.image_token = "<IMG_CONTEXT>";
  EXPECT_EQ(vision_of(opengvlab()), expected);
  EXPECT_EQ(parse(opengvlab())->text_type, "qwen2");
  EXPECT_EQ(parse(opengvlab())->family, parse(internvl())->family);
}

// The defaults are those of the configuration classes of transformers 5.23.0 and of OpenGVLab.
TEST(VisionConfig, KeysThatAreAbsentHaveTheDefaultsOfTheirClass) {
  json config = smolvlm();
  config["vision_config"] = {{"image_size", 256}};
  config["text_config"]["vocab_size"] = 128300;
  config.erase("scale_factor");
  config.erase("image_token_id");
  EXPECT_EQ(vision_of(config), (VisionConfig{.hidden_size = 1152,
                                             .intermediate_size = 3072,
                                             .num_layers = 12,
                                             .num_heads = 16,
                                             .image_size = 256,
                                             .patch_size = 32,
                                             .shuffle = 2,
                                             .activation = Activation::kGeluTanh,
                                             .final_norm = true,
                                             .image_token_id = 128257,
                                             .connector_bias = false}));
  config = internvl();
  config["vision_config"] = json::object();
  config["text_config"]["vocab_size"] = 151674;
  for (const char* key : {"downsample_ratio", "image_token_id", "projector_hidden_act",
                          "vision_feature_layer", "vision_feature_select_strategy"}) {
    config.erase(key);
  }
  EXPECT_EQ(vision_of(config), (VisionConfig{.hidden_size = 1024,
                                             .intermediate_size = 4096,
                                             .num_layers = 24,
                                             .num_heads = 16,
                                             .image_size = 448,
                                             .patch_size = 14,
                                             .shuffle = 2,
                                             .class_token = true,
                                             .drops_first = true,
                                             .qkv_bias = false,
                                             .layer_scale = true,
                                             .connector = Connector::kMlp,
                                             .image_token_id = 151667}));
  config = opengvlab();
  config["vision_config"] = json::object();
  config.erase("force_image_size");
  EXPECT_EQ(vision_of(config), (VisionConfig{.hidden_size = 3200,
                                             .intermediate_size = 12800,
                                             .num_layers = 48,
                                             .num_heads = 25,
                                             .image_size = 224,
                                             .patch_size = 14,
                                             .shuffle = 2,
                                             .class_token = true,
                                             .drops_first = true,
                                             .qkv_bias = false,
                                             .qk_norm = true,
                                             .rms_norm = true,
                                             .layer_scale = true,
                                             .connector = Connector::kMlp,
                                             .image_token = "<IMG_CONTEXT>"}));
}

TEST(VisionConfig, TheTypeOfTheTextPartHasADefault) {
  const json none = {{"text_config", {{"model_type", nullptr}}}};
  EXPECT_EQ(parse(smolvlm(), none)->text_type, "llama");
  EXPECT_EQ(parse(internvl(), none)->text_type, "qwen2");
  const json chat = {{"llm_config", {{"model_type", nullptr}}}};
  EXPECT_EQ(parse(opengvlab(), chat)->text_type, "qwen2");
}

TEST(VisionConfig, ChangesOfOneKeyAreSeen) {
  const json tower = {
      {"use_qk_norm", true}, {"use_mean_pooling", false}, {"norm_type", "rms_norm"}};
  const VisionConfig changed = vision_of(internvl(), {{"vision_config", tower}});
  EXPECT_TRUE(changed.qk_norm && changed.final_norm && changed.rms_norm);
  EXPECT_FALSE(vision_of(internvl(), {{"vision_config", {{"attention_bias", false}}}}).qkv_bias);
  EXPECT_FALSE(vision_of(opengvlab(), {{"vision_config", {{"qkv_bias", false}}}}).qkv_bias);
  EXPECT_EQ(vision_of(internvl(), {{"downsample_ratio", 0.25}}).shuffle, 4);
  EXPECT_EQ(vision_of(internvl(), {{"downsample_ratio", 1.0}}).shuffle, 1);
  EXPECT_EQ(vision_of(internvl(), {{"projector_hidden_act", "silu"}}).connector_activation,
            Activation::kSilu);
  EXPECT_EQ(vision_of(smolvlm(), {{"scale_factor", 8}}).image_tokens(), 1);
  EXPECT_EQ(vision_of(smolvlm(), {{"vision_config", {{"layer_norm_eps", 1e-5}}}}).norm_eps, 1e-5);
  // The reference uses the epsilon of the tower for q and k norms in OpenGVLab's layout only.
  const json eps = {{"vision_config", {{"layer_norm_eps", 1e-4}}}};
  EXPECT_EQ(vision_of(opengvlab(), eps).qk_norm_eps, 1e-4);
}

TEST(VisionConfig, SidesAreANumberOrAListOfEqualOnes) {
  for (const json& side : {json(32), json({32}), json({32, 32})}) {
    for (const json& config : {smolvlm(), internvl(), opengvlab()}) {
      EXPECT_EQ(vision_of(config, {{"vision_config", {{"image_size", side}}}}), vision_of(config))
          << side;
    }
  }
}

TEST(VisionConfig, TiesOfTheHeadAreThoseOfTheOuterConfig) {
  json config = internvl();
  config.erase("tie_word_embeddings");
  EXPECT_TRUE(parse(config)->tie_word_embeddings);  // the default of InternVLConfig
  config["text_config"]["tie_word_embeddings"] = false;
  EXPECT_TRUE(parse(config)->tie_word_embeddings);
  config = smolvlm();
  config.erase("tie_word_embeddings");
  config["text_config"]["tie_word_embeddings"] = true;
  EXPECT_FALSE(parse(config)->tie_word_embeddings);  // the default of SmolVLMConfig
  config = opengvlab();
  config.erase("tie_word_embeddings");
  EXPECT_FALSE(parse(config)->tie_word_embeddings);
  config["llm_config"]["tie_word_embeddings"] = true;
  EXPECT_TRUE(parse(config)->tie_word_embeddings);
}

struct Refusal {
  json config, change;
  ErrorCode code;
  std::string message;  // a part of the message
};

void expect_refused(const std::vector<Refusal>& refusals) {
  for (const Refusal& refusal : refusals) {
    const auto config = parse(refusal.config, refusal.change);
    ASSERT_FALSE(config) << refusal.change;
    EXPECT_EQ(config.error().code, refusal.code) << config.error().message;
    EXPECT_NE(config.error().message.find(refusal.message), std::string::npos)
        << config.error().message;
    EXPECT_TRUE(config.error().message.starts_with("config.json: ")) << config.error().message;
    EXPECT_EQ(config.error().message.find('\n'), std::string::npos) << config.error().message;
  }
}

json vision(const json& change) { return {{"vision_config", change}}; }

TEST(VisionConfig, WhatIsNotSupportedIsRefusedByName) {
  constexpr ErrorCode kCode = ErrorCode::kUnsupported;
  expect_refused({
      {smolvlm(), vision({{"image_size", {32, 64}}}), kCode,
       "'vision_config.image_size' is not square"},
      {internvl(), vision({{"image_size", {32, 32, 32}}}), kCode,
       "'vision_config.image_size' is not square"},
      {internvl(), vision({{"patch_size", {4, 8}}}), kCode,
       "'vision_config.patch_size' is not square"},
      {smolvlm(), vision({{"image_size", 33}}), kCode, "is 33, not a multiple of patch_size 4"},
      {smolvlm(), vision({{"num_channels", 1}}), kCode, "'vision_config.num_channels' is 1"},
      {smolvlm(), vision({{"hidden_act", "mish"}}), kCode, "'vision_config.hidden_act'"},
      {smolvlm(), vision({{"quantization_config", {{"bits", 4}}}}), kCode,
       "'vision_config.quantization_config' is present"},
      {smolvlm(),
       {{"text_config", {{"quantization_config", {{"bits", 4}}}}}},
       kCode,
       "'text_config.quantization_config' is present"},
      {smolvlm(),
       {{"quantization_config", {{"bits", 4}}}},
       kCode,
       "'quantization_config' is present"},
      {smolvlm(),
       {{"text_config", {{"model_type", "qwen2"}}}},
       kCode,
       "'text_config.model_type' is 'qwen2': not supported in smolvlm; supported are llama"},
      {internvl(),
       {{"text_config", {{"model_type", "gpt_oss"}}}},
       kCode,
       "'text_config.model_type' is 'gpt_oss': not supported in internvl; supported are qwen2, "
       "qwen3, qwen3_moe, llama"},
      {opengvlab(),
       {{"llm_config", {{"model_type", "internlm2"}}}},
       kCode,
       "'llm_config.model_type' is 'internlm2': not supported in internvl_chat"},
      // gemma is a supported family, but it multiplies embeddings.
      {internvl(),
       {{"text_config", {{"model_type", "gemma"}}}},
       kCode,
       "'text_config.model_type' is 'gemma': not supported in internvl"},
      {internvl(), vision({{"use_mask_token", true}}), kCode,
       "'vision_config.use_mask_token' is true: not supported"},
      {internvl(), vision({{"use_absolute_position_embeddings", false}}), kCode,
       "'vision_config.use_absolute_position_embeddings' is false: not supported"},
      {internvl(), vision({{"norm_type", "batch_norm"}}), kCode,
       "'vision_config.norm_type' is 'batch_norm'"},
      {internvl(),
       {{"vision_feature_select_strategy", "full"}},
       kCode,
       "'vision_feature_select_strategy' is 'full'; default is supported"},
      {internvl(), {{"vision_feature_layer", -2}}, kCode, "'vision_feature_layer' is -2"},
      {internvl(), {{"downsample_ratio", 0.3}}, kCode, "'downsample_ratio' is 0.3"},
      {opengvlab(), {{"ps_version", "v1"}}, kCode, "'ps_version' is 'v1'; v2 is supported"},
      {opengvlab(), {{"select_layer", -4}}, kCode, "'select_layer' is -4"},
      {opengvlab(),
       {{"force_image_size", 64}},
       kCode,
       "'force_image_size' is 64, the vision tower's image_size is 32"},
  });
}

TEST(VisionConfig, WhatCannotBeIsRefusedByName) {
  constexpr ErrorCode kCode = ErrorCode::kBadInput;
  expect_refused({
      {smolvlm(), {{"vision_config", nullptr}}, kCode, "'vision_config' is missing"},
      {smolvlm(), {{"text_config", nullptr}}, kCode, "'text_config' is missing"},
      {opengvlab(), {{"llm_config", nullptr}}, kCode, "'llm_config' is missing"},
      {smolvlm(),
       {{"image_token_id", 360}},
       kCode,
       "'image_token_id' is 360, the vocabulary has 360 entries"},
      {internvl(), {{"image_token_id", 388}}, kCode, "the vocabulary has 388 entries"},
      {smolvlm(), {{"image_token_id", -1}}, kCode, "'image_token_id'"},
      {smolvlm(),
       {{"scale_factor", 3}},
       kCode,
       "'vision_config' has 8 patches a side, which the factor 3 of the pixel shuffle does not"},
      {smolvlm(), {{"scale_factor", 0}}, kCode, "'scale_factor'"},
      {smolvlm(), vision({{"num_attention_heads", 5}}), kCode,
       "'vision_config.num_attention_heads' is 5, which does not divide hidden_size 48"},
      {smolvlm(), vision({{"hidden_size", 0}}), kCode, "'vision_config.hidden_size'"},
      {smolvlm(), vision({{"image_size", json::array()}}), kCode, "'vision_config.image_size'"},
      {smolvlm(), vision({{"image_size", 1 << 20}}), kCode, "'vision_config.image_size'"},
      {smolvlm(), vision({{"patch_size", "4"}}), kCode, "'vision_config.patch_size'"},
      {internvl(), {{"downsample_ratio", 2.0}}, kCode, "'downsample_ratio'"},
      {opengvlab(), vision({{"num_hidden_layers", 0}}), kCode, "'vision_config.num_hidden_layers'"},
  });
}

Result<ModelConfig> parse_images(const json& config) {
  return parse_model_config(config.dump(), "", "config.json", nullptr, all_families(),
                            Inputs{.images = true});
}

// The configs of the first releases have no text_config, and name the whole model in vision_config.
TEST(AnyShapeConfig, FlatConfigsAreThoseWithATextConfig) {
  const json nested = config_of("families/qwen2_5_vl_images/config.json");
  json flat = nested;
  const json text = flat["text_config"];
  flat.erase("text_config");
  for (const auto& [key, value] : text.items()) {
    if (key != "model_type" && key != "layer_types" && key != "rope_parameters") flat[key] = value;
  }
  const json& rope = text["rope_parameters"];
  flat["rope_theta"] = rope["rope_theta"];
  flat["rope_scaling"] = {{"type", "mrope"}, {"mrope_section", rope["mrope_section"]}};
  flat["vision_config"]["model_type"] = "qwen2_5_vl";
  const auto expected = parse_images(nested), made = parse_images(flat);
  ASSERT_TRUE(expected && made) << made.error().message;
  EXPECT_EQ(*made->vision, *expected->vision);
  EXPECT_EQ(made->rope, expected->rope);
  EXPECT_EQ(made->hidden_size, expected->hidden_size);
  EXPECT_EQ(made->text_type, "qwen2_5_vl_text");
  const AnyShapeConfig& shape = *made->vision->any_shape;
  EXPECT_EQ(shape.window, 2);
  EXPECT_EQ(shape.full, std::vector<int64_t>{1});
  EXPECT_TRUE(shape.gated_mlp && made->vision->rms_norm && !shape.patch_bias);
}

TEST(AnyShapeConfig, SectionsSayWhichPositionTurnsAPairOfDimensions) {
  using Axes = std::vector<int64_t>;
  const auto axes = [](const char* family, const json& sections) {
    json config = config_of(std::string("families/") + family + "/config.json");
    config["text_config"]["rope_parameters"]["mrope_section"] = sections;
    return parse_images(config)->rope.axes;
  };
  EXPECT_EQ(axes("qwen2_vl_images", {2, 1, 1}), (Axes{0, 0, 1, 2}));
  EXPECT_EQ(axes("qwen2_vl_images", {1, 0, 1, 2}), (Axes{0, 2, 0, 0}));
  EXPECT_EQ(axes("qwen3_vl_images", {3, 3, 2}), (Axes{0, 1, 2, 0, 1, 2, 0, 1}));
  EXPECT_EQ(axes("qwen3_vl_images", {9, 1, 0}), (Axes{0, 1, 0, 0, 0, 0, 0, 0}));
  EXPECT_EQ(axes("qwen3_5_images", {2, 1, 1}), (Axes{0, 1, 2, 0}));
}

TEST(AnyShapeConfig, DefaultsAreThoseOfTheReference) {
  const json text = {{"hidden_size", 3584},
                     {"num_attention_heads", 28},
                     {"num_key_value_heads", 4},
                     {"head_dim", 128}};
  const auto defaults = [&](const char* type) {
    return parse_images(
        {{"model_type", type}, {"text_config", text}, {"vision_config", json::object()}});
  };
  const auto two = defaults("qwen2_5_vl"), three = defaults("qwen3_vl");
  ASSERT_TRUE(two && three) << two.error().message << three.error().message;
  EXPECT_EQ(two->vision->any_shape->full, (std::vector<int64_t>{7, 15, 23, 31}));
  EXPECT_EQ(two->vision->any_shape->window, 4);
  EXPECT_EQ(std::ranges::count(two->rope.axes, 0), 16);
  EXPECT_EQ(std::ranges::count(two->rope.axes, 1), 24);
  EXPECT_EQ(three->vision->any_shape->deepstack, (std::vector<int64_t>{8, 16, 24}));
  EXPECT_EQ(three->vision->any_shape->table, 48);
  EXPECT_EQ(std::ranges::count(three->rope.axes, 0), 24);
  EXPECT_EQ(*three->vision->image_token_id, 151655);
}

std::string refusal_of_images(const json& config, const json& change) {
  json changed = config;
  changed.merge_patch(change);
  const auto parsed = parse_images(changed);
  EXPECT_FALSE(parsed) << change;
  return parsed ? std::string() : parsed.error().message;
}

json mistral3() {
  return {{"model_type", "mistral3"},
          {"text_config",
           {{"hidden_size", 64}, {"num_attention_heads", 4}, {"num_key_value_heads", 2}}},
          {"vision_config",
           {{"model_type", "pixtral"}, {"hidden_size", 32}, {"num_attention_heads", 2}}}};
}

TEST(PixtralConfig, DefaultsAreThoseOfTheReference) {
  const auto config = parse_images(mistral3());
  ASSERT_TRUE(config) << config.error().message;
  const VisionConfig& vision = *config->vision;
  EXPECT_EQ(vision.shuffle, 2);
  EXPECT_EQ(vision.patch_size, 16);
  EXPECT_EQ(vision.num_layers, 24);
  EXPECT_EQ(vision.feature_layers, std::vector<int64_t>{24});
  EXPECT_EQ(*vision.image_token_id, 10);
  EXPECT_FALSE(vision.connector_bias || vision.qkv_bias || vision.any_shape->bias);
  EXPECT_TRUE(config->tie_word_embeddings && config->rope.axes.empty());
  json llava = mistral3();
  llava["model_type"] = "llava";
  llava["vision_feature_select_strategy"] = "full";
  llava["image_token_index"] = 10;
  const auto other = parse_images(llava);
  ASSERT_TRUE(other) << other.error().message;
  EXPECT_EQ(other->vision->shuffle, 1);
  EXPECT_EQ(other->vision->depth(), 23);
}

TEST(PixtralConfig, WhatIsNotSupportedIsRefusedByName) {
  const auto expect = [](const json& change, const std::string& message) {
    const std::string said = refusal_of_images(mistral3(), change);
    EXPECT_NE(said.find(message), std::string::npos) << said;
  };
  expect({{"vision_feature_layer", {-1, -2}}}, "vision_feature_layer' has several layers");
  expect({{"vision_config", {{"model_type", "clip_vision_model"}}}}, "pixtral is supported");
  expect({{"vision_config", {{"num_attention_heads", 3}}}}, "not whole quarters");
  expect({{"vision_config", {{"head_dim", 8}}}}, "is 8, where a head has 16");
  expect({{"vision_config", {{"patch_size", {2, 4}}}}}, "is not square");
  expect({{"vision_config", {{"num_channels", 4}}}}, "images have 3 channels");
  expect({{"spatial_merge_size", 17}}, "spatial_merge_size");
  expect({{"image_token_index", 1 << 20}}, "image_token_id");
  expect({{"model_type", "llava"}}, "of a tower of pixtral full is supported");
}

TEST(PaliGemmaConfig, PositionsBeginAtOneAndMasksAreThoseOfTheModel) {
  json config = {{"model_type", "paligemma"},
                 {"projection_dim", 2048},
                 {"text_config",
                  {{"hidden_size", 2048},
                   {"num_attention_heads", 8},
                   {"num_key_value_heads", 1},
                   {"vocab_size", 257216},
                   {"use_bidirectional_attention", true}}},
                 {"vision_config", {{"model_type", "siglip_vision_model"}}}};
  const auto made = parse_images(config);
  ASSERT_TRUE(made) << made.error().message;
  EXPECT_TRUE(made->vision->two_way_prompts && made->vision->two_way_images);
  EXPECT_TRUE(made->vision->connector_bias && made->tie_word_embeddings);
  EXPECT_EQ(made->rope.first_position, 1);
  EXPECT_EQ(made->family->name(), "gemma");
  EXPECT_NE(refusal_of_images(config, {{"projection_dim", 1024}})
                .find("is 1024, the text decoder is 2048 wide"),
            std::string::npos);
}

}  // namespace
}  // namespace ferry::converters::vision_config_test
