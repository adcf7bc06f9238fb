// Images of any shape: what programs they become, and what is refused.
#include <gtest/gtest.h>

#include "tests/end_to_end/vision_families.h"

namespace ferry::any_shape_images_test {
namespace {

using namespace vision_families;

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

}  // namespace
}  // namespace ferry::any_shape_images_test
