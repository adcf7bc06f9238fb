// Vision-language families whose towers are built on demand: pixels, prompts, every stage and the
// answer are those of transformers (tests/conformance/make_vision_golden.py).
#include <gtest/gtest.h>

#include <cstring>
#include <tuple>

#include "tests/cli/checkpoints.h"

namespace ferry::vision_families_test {
namespace {

using Json = nlohmann::json;
using Line = std::vector<std::string>;

Line operator+(Line line, const Line& more) {
  line.insert(line.end(), more.begin(), more.end());
  return line;
}

const Line kInputs = {"--inputs", "images", "--dtype", "f32"};

std::string source_of(const std::string& family) { return fixture("vision/" + family); }

Json cases_of(const std::string& family) {
  return Json::parse(read_bytes(source_of(family) + "/cases.json"));
}

// The chat of a case, as --messages takes it, and its images.
Line prompt_of(const TempDir& dir, const Json& one) {
  const std::string path = dir / "messages.json";
  write_bytes(path, Json{{"messages", one["messages"]}, {"add_generation_prompt", true}}.dump());
  Line line = {"--messages", path};
  for (const std::string image : one["images"]) {
    line = line + Line{"--image", fixture("media/images/" + image)};
  }
  return line;
}

std::string convert(const TempDir& dir, const std::string& family, const Line& options) {
  const std::string bundle = dir / "b";
  const Outcome outcome = run_ferry(Line{"convert", source_of(family), "-o", bundle} + options);
  EXPECT_EQ(outcome.code, 0) << outcome.err << outcome.out;
  return bundle;
}

std::vector<int64_t> ids_of(const TensorFile& file, const std::string& tensor) {
  const std::string bytes = file.bytes_of(tensor);
  std::vector<int64_t> ids(bytes.size() / sizeof(int64_t));
  std::memcpy(ids.data(), bytes.data(), bytes.size());
  return ids;
}

Json verified(const Line& args, int code = 0) {
  const Outcome outcome = run_ferry(Line{"--json", "verify"} + args);
  EXPECT_EQ(outcome.code, code) << outcome.err << outcome.out;
  return outcome.json();
}

void expect_refused(const Line& args, int code, const std::string& message) {
  const Outcome outcome = run_ferry(args);
  EXPECT_EQ(outcome.code, code) << outcome.err;
  EXPECT_EQ(outcome.error_lines(), 1u) << outcome.err;
  EXPECT_NE(outcome.err.find(message), std::string::npos) << outcome.err;
}

class VisionFamily : public testing::TestWithParam<const char*> {};

// The processor's inputs, byte for byte.
TEST_P(VisionFamily, PreprocessGivesTheInputsOfTheReference) {
  const TensorFile golden(vision_golden(GetParam()));
  const Json cases = cases_of(GetParam());
  for (const auto& [name, one] : cases.items()) {
    SCOPED_TRACE(name);
    const TempDir dir;
    Line line = {"preprocess", "--checkpoint", source_of(GetParam()), "-o", dir / "i.safetensors"};
    for (const std::string& word : prompt_of(dir, one)) {
      if (word != "--image") line.push_back(word);
    }
    const Outcome outcome = run_ferry(line);
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    const TensorFile made(dir / "i.safetensors");
    EXPECT_GE(made.header.size(), 2u);
    for (const auto& [tensor, entry] : made.header.items()) {
      const std::string wanted = name + "." + tensor;
      ASSERT_TRUE(golden.header.contains(wanted)) << wanted;
      EXPECT_EQ(entry["shape"], golden.header[wanted]["shape"]) << wanted;
      EXPECT_TRUE(made.bytes_of(tensor) == golden.bytes_of(wanted)) << wanted;
    }
  }
}

struct Style {
  const char* name;
  Line convert, run;
};

const Style kStyles[] = {
    {"stateful", {"--prefill-length", "64"}, {}},
    {"stateful_cut", {"--shards", "2", "--prefill-length", "16"}, {}},
};
const Style kStaticStyles[] = {
    {"static_hybrid",
     {"--program", "static", "--context-length", "160", "--prefill-length", "24"},
     {}},
    {"static_kv",
     {"--program", "static", "--context-length", "160", "--prefill-length", "24", "--shards", "3",
      "--shards-in-one-file"},
     {"--mode", "kv"}},
    {"static_lookahead",
     {"--program", "static", "--context-length", "160", "--prefill-length", "32", "--decode-length",
      "8", "--attention", "sha"},
     {"--mode", "lookahead"}},
};

// Images of gemma4 have up to 70 rows, in one call; its layers pass on more than one tensor.
Line options_of(const std::string& family, const Style& style) {
  Line line = style.convert;
  if (family != "gemma4") return line;
  std::erase(line, "--shards-in-one-file");
  for (size_t i = 0; i + 1 < line.size(); ++i) {
    if (line[i] == "--context-length") line[i + 1] = "256";
    if (line[i] == "--prefill-length") line[i + 1] = "71";
  }
  return line;
}

class VisionFamilyStyle : public testing::TestWithParam<std::tuple<const char*, Style>> {};

// Tower, connector, merged embeddings, layers, caches, logits and tokens.
TEST_P(VisionFamilyStyle, IsAtParityStageByStageAndAnswersAlike) {
  const auto& [family, style] = GetParam();
  const TempDir dir;
  if (family == std::string("lfm2_vl") && style.name == std::string("static_lookahead")) {
    expect_refused(Line{"convert", source_of(family), "-o", dir / "b"} + style.convert, 2,
                   "recurrent states of lfm2_vl cannot be rolled back");
    return;
  }
  const std::string bundle = convert(dir, family, kInputs + options_of(family, style));
  EXPECT_EQ(run_ferry({"check", bundle}).code, 0);
  Line line = {bundle, "--reference", vision_golden(family)};
  const Json cases = cases_of(family);
  for (const auto& [name, one] : cases.items()) {
    for (const std::string image : one["images"]) {
      line = line + Line{"--image", name + "=" + fixture("media/images/" + image)};
    }
  }
  const Json report = verified(line);
  for (const Json& one : report["cases"]) EXPECT_EQ(one.value("skipped", ""), "");
  EXPECT_LT(report["metrics"]["max_abs"], 1e-4);
  EXPECT_EQ(report["metrics"]["greedy_match"], 16);
  for (const std::string stage : {"vision_hidden_states.1", "vision_last_hidden_state",
                                  "image_features", "hidden_states.0", "hidden_states.3"}) {
    // The features of llava are of an earlier layer than the last.
    bool found = family == std::string("llava") && stage == "vision_last_hidden_state";
    for (const Json& layer : report["layers"]) {
      if (layer["name"] != stage) continue;
      found = true;
      EXPECT_GT(layer["sqnr_db"], 100.0) << stage;
    }
    EXPECT_TRUE(found) << stage;
  }
  const TensorFile golden(vision_golden(family));
  for (const auto& [name, one] : cases.items()) {
    SCOPED_TRACE(name);
    const Outcome outcome =
        run_ferry(Line{"--json", "run", bundle, "--max-new", "8", "--ignore-eos", "--greedy"} +
                  prompt_of(dir, one) + style.run);
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    const Json document = outcome.json()["result"];
    EXPECT_EQ(document["prompt_tokens"], Json(ids_of(golden, name + ".input_ids")));
    EXPECT_EQ(document["tokens"], Json(ids_of(golden, name + ".greedy_ids")));
  }
}

// All tokens of a prompt of PaliGemma are in one call.
const Style kWholeStyles[] = {
    {"stateful", {"--prefill-length", "160"}, {}},
    {"static_hybrid",
     {"--program", "static", "--context-length", "256", "--prefill-length", "128"},
     {}},
    {"static_kv",
     {"--program", "static", "--context-length", "256", "--prefill-length", "128", "--shards", "2"},
     {"--mode", "kv"}},
};

const char* const kFamilies[] = {
    "gemma3",     "gemma4",     "lfm2_vl",  "llava",    "llava_pixtral", "mistral3", "paligemma",
    "paligemma2", "qwen2_5_vl", "qwen2_vl", "qwen3_vl", "qwen3_vl_moe",  "qwen3_5"};
const char* const kCutFamilies[] = {"gemma3",        "gemma4",       "lfm2_vl",    "llava",
                                    "llava_pixtral", "mistral3",     "qwen2_5_vl", "qwen2_vl",
                                    "qwen3_vl",      "qwen3_vl_moe", "qwen3_5"};
const char* const kWholeFamilies[] = {"paligemma", "paligemma2"};
const char* const kStaticFamilies[] = {"gemma3", "gemma4", "lfm2_vl", "llava"};
INSTANTIATE_TEST_SUITE_P(Families, VisionFamily, testing::ValuesIn(kFamilies),
                         [](const auto& test) { return std::string(test.param); });
const auto name_of_style = [](const auto& test) {
  return std::string(std::get<0>(test.param)) + "_" + std::get<1>(test.param).name;
};
INSTANTIATE_TEST_SUITE_P(Families, VisionFamilyStyle,
                         testing::Combine(testing::ValuesIn(kCutFamilies),
                                          testing::ValuesIn(kStyles)),
                         name_of_style);
INSTANTIATE_TEST_SUITE_P(WholeFamilies, VisionFamilyStyle,
                         testing::Combine(testing::ValuesIn(kWholeFamilies),
                                          testing::ValuesIn(kWholeStyles)),
                         name_of_style);
INSTANTIATE_TEST_SUITE_P(StaticFamilies, VisionFamilyStyle,
                         testing::Combine(testing::ValuesIn(kStaticFamilies),
                                          testing::ValuesIn(kStaticStyles)),
                         name_of_style);

TEST_P(VisionFamily, TheCheckpointIsProvedWithAndWithoutAReference) {
  const TempDir dir;
  const std::string bundle =
      convert(dir, GetParam(), {"--inputs", "images", "--dtype", "bf16", "--shards", "2"});
  const Json report = verified(
      {bundle, "--checkpoint", source_of(GetParam()), "--reference", vision_golden(GetParam())});
  EXPECT_TRUE(report["does_not_prove"].empty()) << report["does_not_prove"];
  const Json alone = verified({bundle, "--checkpoint", source_of(GetParam())});
  EXPECT_EQ(alone["does_not_prove"].size(), 1u) << alone["does_not_prove"];
}

TEST_P(VisionFamily, TowersInEightBitsAreProved) {
  const TempDir dir;
  const std::string bundle =
      convert(dir, GetParam(), {"--inputs", "images", "--quantize", "8da8w"});
  const Json manifest = Json::parse(read_bytes(bundle + "/manifest.json"));
  EXPECT_EQ(manifest["components"][0]["role"], "vision_encoder");
  EXPECT_NE(manifest["components"][0]["quantization"], "");
  verified({bundle, "--checkpoint", source_of(GetParam())});
}

// A bundle with images becomes its checkpoint again, with equal weights.
TEST_P(VisionFamily, ABundleBecomesItsCheckpointAgain) {
  const TempDir dir;
  const std::string bundle = convert(dir, GetParam(), {"--inputs", "images"});
  ASSERT_EQ(run_ferry({"convert", bundle, "-o", dir / "hf", "--to", "hf"}).code, 0);
  ASSERT_EQ(run_ferry({"convert", dir / "hf", "-o", dir / "again", "--inputs", "images"}).code, 0);
  for (const char* name :
       {"vision_encoder.ptd", "token_embedding.ptd", "decoder-00001-of-00001.ptd"}) {
    EXPECT_TRUE(read_bytes(bundle + "/" + name) == read_bytes(dir / ("again/" + std::string(name))))
        << name;
  }
}

TEST(Gemma3Images, TheTextPartAloneIsBuiltOnDemand) {
  const TempDir dir;
  EXPECT_EQ(run_ferry({"convert", source_of("gemma3"), "-o", dir / "whole"}).code, 0);
  EXPECT_EQ(Json::parse(read_bytes(dir / "whole/manifest.json"))["components"].size(), 3u);
  verified({dir / "whole", "--checkpoint", source_of("gemma3")});
  const std::string bundle = convert(dir, "gemma3", {"--inputs", "text"});
  verified({bundle, "--checkpoint", source_of("gemma3")});
  const Json manifest = Json::parse(read_bytes(bundle + "/manifest.json"));
  EXPECT_EQ(manifest["components"].size(), 1u);
  expect_refused({"run", bundle, "--image", fixture("media/images/tiny.png"), "--chat", "a"}, 2,
                 "this bundle takes no images");
  expect_refused({"convert", fixture("golden/qwen3"), "-o", dir / "c", "--inputs", "images"}, 4,
                 "--inputs images: Ferry builds no vision tower of qwen3");
  expect_refused({"convert", fixture("vision/smolvlm"), "-o", dir / "c", "--inputs", "text"}, 4,
                 "--inputs text: the programs of smolvlm take images");
}

TEST(Gemma4Images, ProgramsThatTakeNoImagesAreOfTextAlone) {
  const std::string source = source_of("gemma4");
  const Line others[] = {{"--program", "encoder"},
                         {"--layout", "one-program"},
                         {"--prefill-length", "69"},
                         {"--program", "static", "--context-length", "70"}};
  for (const Line& options : others) {
    const TempDir dir;
    const Outcome text = run_ferry(Line{"convert", source, "-o", dir / "text"} + options);
    EXPECT_EQ(text.code, 0) << text.err;
    EXPECT_NE((text.out + text.err).find("the programs take text and no images"),
              std::string::npos);
    EXPECT_EQ(
        run_ferry(Line{"convert", source, "-o", dir / "b", "--inputs", "text"} + options).code, 0);
    EXPECT_NE(run_ferry(Line{"convert", source, "-o", dir / "c"} + kInputs + options).code, 0);
  }
}

TEST(Gemma4Images, OneProgramOfAModelWithoutLayerInputsTakesImages) {
  const TempDir dir;
  const std::string source =
      changed_config(dir, "vision/gemma4", {{"text_config", {{"hidden_size_per_layer_input", 0}}}});
  const Line left = {"--allow-unmapped", "*per_layer*"};
  const Outcome outcome = run_ferry(
      Line{"convert", source, "-o", dir / "b", "--layout", "one-program"} + kInputs + left);
  EXPECT_EQ(outcome.code, 0) << outcome.err;
}

TEST(Gemma4Images, ConfigsThatTheReferenceComputesOtherwiseAreRefused) {
  const auto refused = [](const Json& change, int code, const std::string& message) {
    const TempDir dir;
    const std::string source = changed_config(dir, "vision/gemma4", change);
    expect_refused(Line{"convert", source, "-o", dir / "b"} + kInputs, code, message);
  };
  const auto tower = [](const Json& change) { return Json{{"vision_config", change}}; };
  refused(tower({{"model_type", "siglip_vision_model"}}), 4, "gemma4_vision is supported");
  refused(tower({{"rope_parameters", {{"rope_type", "default"}}}}), 4, "axial is supported");
  refused(tower({{"head_dim", 6}}), 3, "needs whole quarters");
  refused(tower({{"num_key_value_heads", 3}}), 3, "which does not divide 4 heads");
  refused(tower({{"hidden_activation", "mish"}}), 4, "hidden_activation");
  refused(tower({{"position_embedding_size", 139}}), 4,
          "is 139, less than the 140 patches of the longest picture");
  refused(tower({{"pooling_kernel_size", 3}}), 3, "a token of 2 x 2, the vision tower takes");
  refused(tower({{"pooling_kernel_size", 1}}), 4, "takes padding for features");
  refused({{"text_config", {{"pad_token_id", 272}}}}, 3, "pad_token_id");
  refused({{"image_token_id", 272}}, 3, "the vocabulary has 272");
}

TEST(Gemma4Images, APictureOfWhichNothingIsLeftIsRefusedAsInTheReference) {
  const TempDir dir;
  const std::string source = changed_config(dir, "vision/gemma4", Json::object());
  Json fields = Json::parse(read_bytes(source + "/processor_config.json"));
  fields["image_processor"]["max_soft_tokens"] = 71;
  write_bytes(source + "/processor_config.json", fields.dump());
  const Line line = {"preprocess", fixture("media/images/tiny.png"), "-o", dir / "o",
                     "--checkpoint"};
  expect_refused(line + Line{source}, 3, "not one of 70, 140, 280, 560 and 1120");
  expect_refused(line + Line{source_of("gemma4"), "--prompt", "<|image|><|video|>"}, 4,
                 "videos are not supported");
}

// Placeholders of sounds have the embedding and the layer inputs of the padding token.
TEST(Gemma4Images, PlaceholdersOfSoundsAreThePaddingTokens) {
  const TempDir dir;
  const std::string bundle = convert(dir, "gemma4", kInputs);
  const auto answer = [&](const std::string& tokens) {
    const Outcome outcome = run_ferry({"--json", "run", bundle, "--tokens", tokens, "--max-new",
                                       "6", "--ignore-eos", "--greedy"});
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return outcome.json()["result"]["tokens"];
  };
  EXPECT_EQ(answer("1,20,6,30"), answer("1,20,0,30"));
  EXPECT_EQ(answer("1,20,9,30"), answer("1,20,0,30"));
}

TEST(AnyShapeImages, OtherProgramsThanStatefulOnesAreOfTextAlone) {
  const std::string source = source_of("qwen3_vl");
  const Line others[] = {{"--program", "static", "--context-length", "64"},
                         {"--program", "encoder"},
                         {"--layout", "one-program"}};
  for (const Line& options : others) {
    const TempDir dir;
    const Outcome text = run_ferry(Line{"convert", source, "-o", dir / "text"} + options);
    EXPECT_EQ(text.code, 0) << text.err;
    EXPECT_NE((text.out + text.err).find("the programs take text and no images"),
              std::string::npos);
    expect_refused(Line{"convert", source, "-o", dir / "b"} + kInputs + options, 4,
                   "--inputs images: ");
  }
}

TEST(AnyShapeImages, TheTextPartAloneIsThatOfTheSameCheckpointWithoutATower) {
  const TempDir dir;
  const std::string bundle = convert(dir, "qwen2_5_vl", {"--inputs", "text"});
  const Json manifest = Json::parse(read_bytes(bundle + "/manifest.json"));
  EXPECT_EQ(manifest["components"].size(), 1u);
  EXPECT_EQ(manifest["version"], 7);
  verified({bundle, "--checkpoint", source_of("qwen2_5_vl")});
}

TEST(AnyShapeImages, AnImageBeyondTheBoundIsRefusedByItsSize) {
  const TempDir dir;
  const std::string bundle = convert(dir, "qwen2_vl", kInputs + Line{"--max-patches", "24"});
  const Json manifest = Json::parse(read_bytes(bundle + "/manifest.json"));
  EXPECT_EQ(manifest["model"]["image_grid"]["merge_size"], 2);
  const std::string image = fixture("media/images/noise.png");
  expect_refused({"run", bundle, "--image", image, "--chat", "a"}, 3, "takes 24 patches at most");
  expect_refused(Line{"convert", source_of("qwen2_vl"), "-o", dir / "c", "--max-patches", "3"}, 2,
                 "--max-patches 3: a block has 4 patches");
  expect_refused(Line{"convert", fixture("golden/qwen3"), "-o", dir / "c", "--max-patches", "16"},
                 2, "--max-patches: is for vision towers that take images of any shape");
}

// Two runs of placeholders side by side have no places in the reference either.
TEST(AnyShapeImages, TwoImagesWithoutATokenBetweenThemAreRefused) {
  const TempDir dir;
  const std::string bundle = convert(dir, "qwen2_vl", kInputs);
  const std::string image = fixture("media/images/tiny.png");
  const Line line = {"run", bundle, "--max-new", "1", "--image", image, "--image", image};
  expect_refused(line + Line{"--prompt", "<|image_pad|><|image_pad|>a"}, 2,
                 "two images without a token between them");
  EXPECT_EQ(run_ferry(line + Line{"--prompt", "a"}).code, 0);
}

TEST(AnyShapeImages, APictureOfAnExtremeShapeIsRefusedAsInTheReference) {
  const TempDir dir;
  write_bytes(dir / "thin.ppm", "P6 201 1 255\n" + std::string(603, 'a'));
  write_bytes(dir / "wide.ppm", "P6 200 1 255\n" + std::string(600, 'a'));
  const Line line = {"preprocess", "--checkpoint", source_of("qwen2_vl"), "-o", dir / "o"};
  expect_refused(line + Line{dir / "thin.ppm"}, 3,
                 "201 x 1 pixels: one side is more than 200 times as long as the other");
  EXPECT_EQ(run_ferry(line + Line{dir / "wide.ppm"}).code, 0);
}

TEST(AnyShapeImages, ConfigsThatTheReferenceComputesOtherwiseAreRefused) {
  const auto refused = [](const std::string& family, const Json& change, int code,
                          const std::string& message) {
    const TempDir dir;
    const std::string source = changed_config(dir, "vision/" + family, change);
    expect_refused(Line{"convert", source, "-o", dir / "b"} + kInputs, code, message);
  };
  const auto tower = [](const Json& change) { return Json{{"vision_config", change}}; };
  refused("qwen2_5_vl", tower({{"num_heads", 5}}), 3, "num_heads");
  refused("qwen2_5_vl", tower({{"num_heads", 4}}), 3, "RoPE by row and column");
  refused("qwen2_5_vl", tower({{"window_size", 7}}), 3, "less than a block of 2 x 4 pixels");
  refused("qwen2_5_vl", tower({{"out_hidden_size", 16}}), 3, "the text decoder is 32 wide");
  refused("qwen2_5_vl", tower({{"in_channels", 4}}), 4, "images have 3 channels");
  refused("qwen2_5_vl", tower({{"hidden_act", "mish"}}), 4, "hidden_act");
  refused("qwen2_5_vl", tower({{"rope_parameters", {{"rope_type", "yarn"}}}}), 4, "axial");
  refused("qwen2_5_vl", {{"image_token_id", 272}}, 3, "the vocabulary has 272");
  refused("qwen3_vl", tower({{"num_position_embeddings", 24}}), 4, "not a square");
  refused("qwen3_vl", tower({{"deepstack_visual_indexes", {0, 3}}}), 4, "has 3, of 3 layers");
  refused("qwen3_vl", tower({{"deepstack_visual_indexes", {1, 1}}}), 4, "has 1, twice");
  const auto sections = [](const Json& numbers) {
    return Json{{"text_config",
                 {{"rope_parameters", {{"rope_type", "default"}, {"mrope_section", numbers}}}}}};
  };
  refused("qwen2_vl", sections({1, 1, 1}), 3, "has 3 pairs of dimensions, where heads have 4");
  refused("qwen3_vl", sections({1, 1}), 3, "has 2 numbers, expected 3");
}

TEST(Gemma3Images, AnImageThatNoCallHoldsIsRefused) {
  const TempDir dir;
  const std::string source = source_of("gemma3");
  expect_refused(Line{"convert", source, "-o", dir / "c", "--prefill-length", "15"} + kInputs, 2,
                 "--prefill-length 15: the 16 rows of an image of gemma3 attend to each other");
}

TEST(Gemma3Images, ConfigsThatTheReferenceComputesOtherwiseAreRefused) {
  const auto refused = [](const Json& change, int code, const std::string& message) {
    const TempDir dir;
    const std::string source = changed_config(dir, "vision/gemma3", change);
    expect_refused(Line{"convert", source, "-o", dir / "b"} + kInputs, code, message);
  };
  refused({{"mm_tokens_per_image", 15}}, 4, "mm_tokens_per_image");
  refused({{"mm_tokens_per_image", 9}}, 4, "not the square of a divisor of 8");
  refused({{"image_token_index", 272}}, 3, "the vocabulary has 272");
  refused({{"vision_config", {{"model_type", "siglip2_vision_model"}}}}, 4,
          "siglip_vision_model is supported");
}

TEST(Lfm2VlImages, ConfigsThatTheReferenceComputesOtherwiseAreRefused) {
  const auto refused = [](const Json& change, int code, const std::string& message) {
    const TempDir dir;
    const std::string source = changed_config(dir, "vision/lfm2_vl", change);
    expect_refused(Line{"convert", source, "-o", dir / "b"}, code, message);
  };
  refused({{"vision_config", {{"model_type", "siglip_vision_model"}}}}, 4,
          "siglip2_vision_model is supported");
  refused({{"vision_config", {{"num_patches", 24}}}}, 3, "24, not the square of a number");
  refused({{"text_config", {{"model_type", "llama"}}}}, 4, "supported are lfm2, lfm2_moe");
  refused({{"downsample_factor", 3}}, 3, "a token of 2 x 2, the vision tower takes patches of 4");
  refused({{"projector_hidden_size", 0}}, 3, "projector_hidden_size");
}

TEST(LlavaImages, ConfigsThatTheReferenceComputesOtherwiseAreRefused) {
  const auto refused = [](const Json& change, int code, const std::string& message) {
    const TempDir dir;
    const std::string source = changed_config(dir, "vision/llava", change);
    expect_refused(Line{"convert", source, "-o", dir / "b"}, code, message);
  };
  refused({{"vision_config", {{"model_type", "dinov2"}}}}, 4,
          "clip_vision_model, siglip_vision_model, pixtral are supported");
  refused({{"vision_feature_layer", 4}}, 3, "vision_feature_layer");
  refused({{"vision_feature_layer", -5}}, 3, "vision_feature_layer");
  refused({{"vision_feature_layer", Json::array()}}, 3, "is an empty list");
  refused({{"vision_feature_layer", 0}}, 4, "asks for no layer");
  refused({{"vision_feature_select_strategy", "cls"}}, 4, "default and full are supported");
  refused({{"image_token_index", 272}}, 3, "the vocabulary has 272");
  refused({{"text_config", {{"model_type", "gpt2"}}}}, 4, "supported are llama");
}

TEST(LlavaImages, ProcessorsThatDoNotFitAreRefused) {
  const auto refused = [](const std::string& file, const std::string& field, const Json& value,
                          int code, const std::string& message) {
    const TempDir dir;
    const std::string source = changed_config(dir, "vision/llava", Json::object());
    Json fields = Json::parse(read_bytes(source + "/" + file));
    Json& object = field == "patch_size" ? fields : fields["image_processor"];
    object[field] = value;
    write_bytes(source + "/" + file, fields.dump());
    expect_refused({"preprocess", fixture("media/images/tiny.png"), "--checkpoint", source, "-o",
                    dir / "o", "--prompt", "a"},
                   code, message);
  };
  const std::string file = "processor_config.json";
  refused(file, "patch_size", nullptr, 3, "no field 'patch_size'");
  refused(file, "patch_size", 64, 3, "from 1 to 32");
  refused(file, "crop_size", {{"height", 32}, {"width", 16}}, 4, "tiles that are not square");
  refused(file, "do_center_crop", false, 4, "tiles that are not square");
  refused(file, "do_pad", true, 4, "do_pad");
  refused(file, "size", {{"longest_edge", 32}}, 4, "size");
}

TEST(LlavaImages, APictureThatBecomesTooLongIsRefused) {
  const TempDir dir;
  const std::string picture = dir / "narrow.ppm";
  write_bytes(picture, "P6 2000 1 255\n" + std::string(6000, '\7'));
  expect_refused({"preprocess", picture, "--checkpoint", source_of("llava"), "-o", dir / "o"}, 3,
                 "becomes 72000 pixels long, where 65535 are the limit");
}

TEST(Lfm2VlImages, PicturesThatTheReferenceCannotProcessAreRefused) {
  const TempDir dir;
  const std::string picture = dir / "narrow.ppm";
  write_bytes(picture, "P6 1000 1 255\n" + std::string(3000, '\7'));
  const Line line = {"preprocess", picture, "--checkpoint", source_of("lfm2_vl")};
  expect_refused(line + Line{"-o", dir / "o"}, 4,
                 "narrow.ppm: a picture of 1000 x 1 pixels becomes 436 patches");
  const Line whole = {"preprocess",   fixture("media/images/tiny.png"),
                      "--checkpoint", source_of("lfm2_vl"),
                      "--backend",    "pil",
                      "-o",           dir / "o"};
  expect_refused(whole, 4, "this image processor has no backend pil");
}

}  // namespace
}  // namespace ferry::vision_families_test
