#include "media/video_settings.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "core/file.h"

namespace ferry::media::video_settings_test {
namespace {

using nlohmann::json;

// LlavaOnevisionProcessor states the tokens of a tile.
Result<VideoSettings> settings_of(const json& fields) {
  return video_settings_from({R"({"num_image_tokens": 10})", fields.dump(), ""}, "d");
}

json rules() {
  return json::parse(read_text_file(FERRY_TESTDATA "/video/rules.json", uint64_t{1} << 20).value());
}

// The frames and sizes that the classes of transformers take
// (tests/conformance/make_video_golden.py).
TEST(VideoSettings, FramesAreThoseThatTheReferenceTakes) {
  const json golden = rules();
  ASSERT_GE(golden["taken"].size(), 80U);
  for (const json& one : golden["taken"]) {
    const auto settings = settings_of(one["settings"]);
    ASSERT_TRUE(settings) << settings.error().message;
    const auto frames = taken_frames(*settings, one["total"], one["fps"]);
    // A video of one frame is no group of Qwen3-VL, which the reference finds when it resizes it.
    const bool short_group = settings->kind == VideoKind::kQwen3Vl && one["total"] == 1;
    EXPECT_EQ(frames.has_value(), !one["frames"].is_null() && !short_group)
        << one.dump().substr(0, 200);
    if (frames) {
      EXPECT_EQ(*frames, one["frames"].get<std::vector<int64_t>>()) << one["settings"];
    }
    if (!frames) {
      EXPECT_EQ(frames.error().code, ErrorCode::kBadInput);
    }
  }
}

TEST(VideoSettings, SizesAreThoseOfTheReference) {
  const json golden = rules();
  ASSERT_GE(golden["sizes"].size(), 28U);
  for (const json& one : golden["sizes"]) {
    const auto settings = settings_of(one["settings"]);
    ASSERT_TRUE(settings) << settings.error().message;
    const Size frame = {one["width"], one["height"]};
    const auto size = video_size(frame, one["frames"], *settings);
    const bool refused = one["size"].is_null();
    // The number of frames is checked before.
    if (settings->kind == VideoKind::kQwen3Vl && one["frames"] < settings->frame.frames) continue;
    EXPECT_EQ(size.has_value(), !refused) << one;
    if (size && !refused) {
      EXPECT_EQ(*size, (Size{one["size"][0], one["size"][1]})) << one;
    }
  }
}

TEST(VideoSettings, AFileOfImagesNamesTheClassOfVideos) {
  const json images = {{"image_processor_type", "Qwen2VLImageProcessorFast"},
                       {"processor_class", "Qwen2_5_VLProcessor"},
                       {"min_pixels", 3136},
                       {"max_pixels", 12845056}};
  const auto from_images = video_settings_from({"", "", images.dump()}, "d");
  ASSERT_TRUE(from_images) << from_images.error().message;
  EXPECT_EQ(from_images->kind, VideoKind::kQwen2Vl);
  EXPECT_EQ(from_images->frame.most_pixels, 12845056);
  EXPECT_FALSE(from_images->samples);
  const json video = {{"video_processor_type", "Qwen3VLVideoProcessor"}, {"min_pixels", 1}};
  const auto own = video_settings_from({"", video.dump(), images.dump()}, "d");
  ASSERT_TRUE(own) << own.error().message;
  EXPECT_EQ(own->kind, VideoKind::kQwen3Vl);
  EXPECT_EQ(own->frame.least_pixels, 128 * 32 * 32);
  const json inner = {{"video_processor", {{"video_processor_type", "InternVLVideoProcessor"}}}};
  EXPECT_EQ(video_settings_from({inner.dump(), video.dump(), ""}, "d")->kind, VideoKind::kInternVl);
}

TEST(VideoSettings, WhatIsNotSupportedIsNamed) {
  const auto said = [](const json& change, ErrorCode code) {
    json fields = {{"video_processor_type", "Qwen2VLVideoProcessor"}};
    fields.update(change);
    const auto settings = settings_of(fields);
    EXPECT_FALSE(settings.has_value()) << change;
    if (!settings) {
      EXPECT_EQ(settings.error().code, code) << change;
    }
    return settings ? std::string() : settings.error().message;
  };
  const std::string where = "d/video_preprocessor_config.json: ";
  EXPECT_EQ(
      said({{"video_processor_type", "VideoLlama3VideoProcessor"}}, ErrorCode::kUnsupported),
      where + "video_processor_type: videos of 'VideoLlama3VideoProcessor' are not supported");
  EXPECT_EQ(said({{"crop", 1}}, ErrorCode::kUnsupported),
            where + "field 'crop': not supported with Qwen2VLVideoProcessor");
  EXPECT_EQ(said({{"fps", -1}}, ErrorCode::kBadInput),
            where + "field 'fps': not a number from 0.001 to 10000");
  EXPECT_EQ(said({{"num_frames", 0}}, ErrorCode::kBadInput),
            where + "field 'num_frames': not a whole number from 1 to 1048576");
  EXPECT_EQ(said({{"do_resize", false}}, ErrorCode::kUnsupported),
            where + "field 'do_resize': the value 'false' is not supported");
  EXPECT_EQ(said({{"patch_size", 5000}}, ErrorCode::kBadInput),
            where + "field 'patch_size': not a whole number from 1 to 256");
  const auto none = video_settings_from({}, "d");
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().code, ErrorCode::kIo);
}

TEST(VideoSettings, DefaultsAreThoseOfTheClasses) {
  const auto gemma4 = settings_of({{"video_processor_type", "Gemma4VideoProcessor"}});
  ASSERT_TRUE(gemma4) << gemma4.error().message;
  EXPECT_EQ(gemma4->frame.max_patches(), 630);
  EXPECT_TRUE(gemma4->samples && gemma4->frame.normalize);
  EXPECT_EQ(gemma4->count, 32);
  const json null = {{"video_processor_type", "Gemma4VideoProcessor"}, {"num_frames", nullptr}};
  EXPECT_FALSE(settings_of(null)->count);
  const json large = {{"video_processor_type", "Gemma4VideoProcessor"},
                      {"patch_size", 256},
                      {"max_soft_tokens", 1120}};
  ASSERT_FALSE(settings_of(large));
  EXPECT_NE(settings_of(large).error().message.find("tiles of 10080 patches"), std::string::npos)
      << settings_of(large).error().message;
}

// The image processor of LLaVA-OneVision has fields that its video processor does not read.
TEST(VideoSettings, FramesOfLlavaOnevisionHaveAQuarterOfTheTokens) {
  const json images = {{"image_processor_type", "LlavaOnevisionImageProcessor"},
                       {"image_grid_pinpoints", {{384, 384}}},
                       {"do_pad", true},
                       {"size", {{"height", 20}, {"width", 20}}}};
  const json processor = {{"num_image_tokens", 27 * 27 + 1}};
  const auto made = video_settings_from({processor.dump(), "", images.dump()}, "d");
  ASSERT_TRUE(made) << made.error().message;
  EXPECT_EQ(made->kind, VideoKind::kLlavaOnevision);
  EXPECT_EQ(made->frame_tokens, 14 * 14);
  EXPECT_EQ(made->frame.tile, 20);
  const json video = {{"image_processor_type", "LlavaOnevisionVideoProcessor"}};
  const auto own = video_settings_from({processor.dump(), video.dump(), images.dump()}, "d");
  ASSERT_TRUE(own) << own.error().message;
  EXPECT_EQ(own->frame.tile, 384);
  for (const char* wrong :
       {"", "{}", R"({"num_image_tokens": 0})", R"({"num_image_tokens": 4294967296})"}) {
    const auto refused = video_settings_from({wrong, video.dump(), ""}, "d");
    ASSERT_FALSE(refused) << wrong;
    EXPECT_EQ(refused.error().code, ErrorCode::kBadInput);
  }
}

TEST(VideoSettings, LongVideosAreRefused) {
  const auto settings = settings_of({{"video_processor_type", "Qwen2VLVideoProcessor"}});
  EXPECT_EQ(taken_frames(*settings, kMaxTakenFrames + 1, 24).error().message,
            "the video processor takes 16385 frames; the limit is 16384");
  EXPECT_FALSE(taken_frames(*settings, 0, 24));
  EXPECT_FALSE(taken_frames(*settings, kMaxVideoFrames + 1, 24));
}

}  // namespace
}  // namespace ferry::media::video_settings_test
