#include "plan/image_patches.h"

#include <gtest/gtest.h>

namespace ferry::plan::image_patches_test {
namespace {

// A tower of Gemma 4, whose checkpoint states these tokens of images and of frames.
Result<int64_t> patches_of(int64_t positions, const char* images, const char* frames) {
  converters::ModelConfig config;
  config.model_type = "gemma4";
  converters::VisionConfig& vision = config.vision.emplace();
  vision.patch_size = 16;
  vision.shuffle = 3;
  vision.max_patches = 1;
  vision.video_token_id = 9;
  vision.gemma4.emplace().positions = positions;
  const std::string text = std::string(R"({"processor_class": "Gemma4Processor",)") +
                           R"("image_processor": {"image_processor_type":)" +
                           R"("Gemma4ImageProcessor", "max_soft_tokens": )" + images + R"(},)" +
                           R"("video_processor": {"video_processor_type":)" +
                           R"("Gemma4VideoProcessor", "max_soft_tokens": )" + frames + "}}";
  ConvertOptions options;
  options.source = "m";
  FERRY_RETURN_IF_ERROR(
      settle_patches(options, {{.name = "processor_config.json", .text = text}}, config));
  return config.vision->max_patches;
}

TEST(ImagePatches, ListsAreThoseOfTheLongerOfPicturesAndFrames) {
  EXPECT_EQ(patches_of(2000, "70", "280").value_or(0), 280 * 9);
  EXPECT_EQ(patches_of(2000, "280", "70").value_or(0), 280 * 9);
  EXPECT_EQ(patches_of(840, "70", "280").value_or(0), 280 * 9);
}

TEST(ImagePatches, FramesThatAreNotSupportedDoNotCount) {
  EXPECT_EQ(patches_of(839, "70", "280").value_or(0), 70 * 9);
  EXPECT_EQ(patches_of(2000, "70", "71").value_or(0), 70 * 9);
  EXPECT_FALSE(patches_of(839, "280", "70"));
}

}  // namespace
}  // namespace ferry::plan::image_patches_test
