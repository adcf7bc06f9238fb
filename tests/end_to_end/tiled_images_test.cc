// Pictures whose tiles have rows together (LLaVA-NeXT): what is refused, and what manifests state.
#include <gtest/gtest.h>

#include "tests/end_to_end/vision_families.h"

namespace ferry::tiled_images_test {
namespace {

using namespace vision_families;

TEST(TiledImages, TheManifestStatesTheResolutions) {
  const TempDir dir;
  const std::string bundle = convert(dir, "llava_next", kInputs);
  const Json manifest = Json::parse(read_bytes(bundle + "/manifest.json"));
  EXPECT_EQ(manifest["version"], 13);
  const Json& tiles = manifest["model"]["image_tiles"];
  EXPECT_EQ(tiles["resolutions"], Json({20, 40, 40, 20, 40, 40, 20, 60}));
  EXPECT_EQ(tiles["most_tiles"], 0);
}

TEST(TiledImages, OneProgramOfAllComponentsIsRefused) {
  const TempDir dir;
  expect_refused({"convert", source_of("llava_next"), "-o", dir / "b", "--layout", "one-program"},
                 4, "takes no pictures of several tiles");
}

void expect_config_refused(const Json& change, int code, const std::string& message) {
  const TempDir dir;
  const std::string source = changed_config(dir, "vision/llava_next", change);
  expect_refused(Line{"convert", source, "-o", dir / "b"}, code, message);
}

TEST(TiledImages, ConfigsThatTheReferenceComputesOtherwiseAreRefused) {
  const auto refused = expect_config_refused;
  refused({{"vision_config", {{"model_type", "pixtral"}}}}, 4,
          "clip_vision_model, siglip_vision_model are supported");
  refused({{"vision_feature_select_strategy", "full"}}, 4,
          "with a class token default is supported");
  refused({{"text_config", {{"model_type", "gpt2"}}}}, 4, "supported are llama");
  refused({{"vision_config", {{"patch_size", 21}}}}, 4, "is 20, not a multiple of patch_size 21");
}

TEST(TiledImages, HostileResolutionsAreRefused) {
  const auto refused = [](const Json& list, int code, const std::string& message) {
    expect_config_refused({{"image_grid_pinpoints", list}}, code, message);
  };
  refused(Json::array(), 3, "is not a list of 1 to 256 resolutions");
  refused(Json(std::vector<Json>(257, Json{20, 20})), 3, "is not a list of 1 to 256 resolutions");
  refused(20, 3, "is not a list of 1 to 256 resolutions");
  refused({{20, 40, 60}}, 3, "not a height and a width up to 8192");
  refused({{20, -40}}, 3, "not a height and a width up to 8192");
  refused({{20, 1e30}}, 3, "not a height and a width up to 8192");
  refused({{20, 8200}}, 3, "not a height and a width up to 8192");
  refused({{20, 30}}, 4, "has 20 x 30, which is not 1 to 256 tiles of image_size 20");
  refused({{340, 340}}, 4, "has 340 x 340, which is not 1 to 256 tiles");
}

TEST(TiledImages, NumbersOfFeaturesThatTheReferenceReadsOtherwiseAreRefused) {
  const auto refused = [](const Json& change, int code, const std::string& message) {
    const TempDir dir;
    const std::string source = changed_config(dir, "vision/llava_onevision", change);
    expect_refused(Line{"convert", source, "-o", dir / "b"}, code, message);
  };
  for (const char* aspect : {"anyres_max_0", "anyres_max_1000", "anyres_max_", "anyres", "pad",
                             "anyres_max_9x", "anyres_max_-9"}) {
    refused({{"vision_aspect_ratio", aspect}}, 4, "anyres_max_N is supported");
  }
  refused({{"vision_feature_select_strategy", "default"}}, 4,
          "without a class token full is supported");
  refused({{"image_grid_pinpoints", nullptr}}, 4, "tiles of 384 pixels by default");
}

TEST(TiledImages, TheManifestStatesTheMostTiles) {
  const TempDir dir;
  const std::string bundle = convert(dir, "llava_onevision", kInputs);
  const Json manifest = Json::parse(read_bytes(bundle + "/manifest.json"));
  EXPECT_EQ(manifest["model"]["image_tiles"]["most_tiles"], 2);
}

TEST(TiledImages, APlaceholderOfAVideoNeedsOne) {
  const TempDir dir;
  expect_refused({"preprocess", "--checkpoint", source_of("llava_onevision"), "-o", dir / "o",
                  "--prompt", "<video>", fixture("media/images/tiny.png")},
                 3, "1 placeholder '<video>' in the prompt for 0 videos");
}

// Rows of images are multiplied in the text decoder, as the embeddings of a text are.
TEST(TiledImages, GraniteMultipliesTheRowsOfImages) {
  const TempDir dir;
  const std::string source = changed_config(dir, "vision/granite_vision",
                                            {{"text_config", {{"embedding_multiplier", 1.0}}}});
  for (const std::string& from : {source, source_of("granite_vision")}) {
    const TempDir out;
    ASSERT_EQ(run_ferry(Line{"convert", from, "-o", out / "b", "--dtype", "f32"}).code, 0);
    const Json manifest = Json::parse(read_bytes(out / "b/manifest.json"));
    size_t probes = 0;
    for (const Json& probe : manifest["components"][2]["programs"][0]["methods"][0]["probes"]) {
      probes += probe["name"] == "hidden_states.0" ? 1 : 0;
    }
    EXPECT_EQ(probes, from == source ? 0U : 1U);
    verified({out / "b", "--checkpoint", from});
  }
}

// Writes a field of processor_config.json, of the image processor if it has that.
std::string changed_processor(const TempDir& dir, const std::string& field, const Json& value) {
  const std::string source = changed_config(dir, "vision/llava_next", Json::object());
  Json fields = Json::parse(read_bytes(source + "/processor_config.json"));
  Json& inner = fields["image_processor"];
  (inner.contains(field) ? inner : fields)[field] = value;
  write_bytes(source + "/processor_config.json", fields.dump());
  return source;
}

TEST(TiledImages, ProcessorsThatDoNotFitAreRefused) {
  const auto refused = [](const std::string& field, const Json& value, int code,
                          const std::string& message) {
    const TempDir dir;
    expect_refused({"preprocess", fixture("media/images/tiny.png"), "--checkpoint",
                    changed_processor(dir, field, value), "-o", dir / "o", "--prompt", "a"},
                   code, message);
  };
  refused("patch_size", nullptr, 3, "no field 'patch_size'");
  refused("patch_size", 21, 3, "from 1 to 20");
  refused("num_additional_image_tokens", 1 << 17, 3, "from 0 to 65536");
  refused("crop_size", {{"height", 24}, {"width", 24}}, 4, "crop_size is 24 x 24, size 20 x 20");
  refused("size", {{"height", 20}, {"width", 24}}, 4, "size");
  refused("do_pad", false, 4, "do_pad");
  refused("image_grid_pinpoints", Json::array(), 3, "not a list of 1 to 256 sizes");
  refused("image_grid_pinpoints", {{20}}, 3, "a size that is no pair");
  refused("image_grid_pinpoints", {{20, 8193}}, 3, "not a whole number from 1 to 8192");
  refused("image_grid_pinpoints", {{20, 30}}, 4, "has 20 x 30, which is not 1 to 256 tiles");
  refused("image_grid_pinpoints", {{20, 8000}}, 4, "has 20 x 8000, which is not 1 to 256 tiles");
}

// The model counts features by its config, the processor placeholders by its files.
TEST(TiledImages, ProcessorsOfAnotherModelAreRefused) {
  const auto refused = [](const std::string& field, const Json& value, const std::string& message) {
    const TempDir dir;
    const std::string source = changed_processor(dir, field, value);
    ASSERT_EQ(run_ferry({"convert", source, "-o", dir / "b"}).code, 0);
    expect_refused({"run", dir / "b", "--image", fixture("media/images/tiny.png"), "--chat", "a"},
                   3, message);
  };
  refused("image_grid_pinpoints", {{20, 40}}, "are not those of the config");
  refused("patch_size", 5, "has 16 tokens for the whole picture and 4 x 4 for a tile");
  refused("vision_feature_select_strategy", "full", "has 10 tokens for the whole picture");
}

}  // namespace
}  // namespace ferry::tiled_images_test
