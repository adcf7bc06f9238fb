// Images for Gemma 3 and Gemma 4: what programs they become, and what is refused.
#include <gtest/gtest.h>

#include "tests/end_to_end/vision_families.h"

namespace ferry::gemma_images_test {
namespace {

using namespace vision_families;

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
  expect_refused(line + Line{source_of("gemma4"), "--prompt", "<|image|><|video|>"}, 3,
                 "1 placeholder '<|video|>' in the prompt for 0 videos");
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

}  // namespace
}  // namespace ferry::gemma_images_test
