#include "media/settings.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <tuple>

#include "media/pixel_values.h"
#include "tests/formats/temp_dir.h"

namespace ferry::media::settings_test {
namespace {

using nlohmann::json;

const json kInternVl = {{"image_processor_type", "GotOcr2ImageProcessorFast"},
                        {"processor_class", "InternVLProcessor"},
                        {"size", {{"height", 448}, {"width", 448}}}};
const json kSmolVlm = {{"image_processor_type", "Idefics3ImageProcessor"},
                       {"processor_class", "Idefics3Processor"}};
const json kLfm2Vl = {{"image_processor_type", "Lfm2VlImageProcessorFast"},
                      {"processor_class", "Lfm2VlProcessor"}};

Error refused(const json& base, const json& change) {
  json fields = base;
  for (const auto& [name, value] : change.items()) fields[name] = value;
  const auto settings = settings_from(fields.dump(), "", "d");
  EXPECT_FALSE(settings.has_value()) << change;
  return settings ? Error{} : settings.error();
}

TEST(MediaSettings, DefaultsAreThoseOfTheClasses) {
  const Settings smolvlm = *settings_from(kSmolVlm.dump(), "", "d");
  EXPECT_EQ(smolvlm.longest_edge, 1456);
  EXPECT_EQ(smolvlm.tile, 364);
  EXPECT_TRUE(smolvlm.split && smolvlm.has_mask());
  EXPECT_EQ(smolvlm.filter, Filter::kLanczos);
  const Settings internvl = *settings_from(kInternVl.dump(), "", "d");
  EXPECT_EQ(internvl.tile, 448);
  EXPECT_EQ(internvl.most_patches, 12);
  EXPECT_EQ(internvl.filter, Filter::kBicubic);
  EXPECT_FALSE(internvl.has_mask());
}

// The processor of InternVL overrides the file of the image processor.
TEST(MediaSettings, InternVlAlwaysCrops) {
  json fields = kInternVl;
  fields["crop_to_patches"] = false;
  EXPECT_TRUE(settings_from(fields.dump(), "", "d")->crop);
}

// The longest list of patches is that of a tile or of a picture with most tokens.
TEST(MediaSettings, Lfm2VlCountsPatches) {
  const auto patches = [](const json& change) {
    json fields = kLfm2Vl;
    fields.update(change);
    const auto settings = settings_from(fields.dump(), "", "d");
    return settings ? settings->max_patches() : -1;
  };
  EXPECT_EQ(patches(json::object()), 1024);
  EXPECT_EQ(patches({{"max_num_patches", 7}}), 1024);
  EXPECT_EQ(patches({{"tile_size", 1024}}), 4096);
  EXPECT_EQ(patches({{"tile_size", 1024}, {"do_image_splitting", false}}), 1024);
  EXPECT_EQ(patches({{"tile_size", 1024}, {"min_tiles", 1}, {"max_tiles", 1}}), 4096);
  EXPECT_EQ(patches({{"max_image_tokens", 64}, {"downsample_factor", 1}, {"tile_size", 64}}), 64);
}

TEST(MediaSettings, Lfm2VlRefusesWhatTheReferenceCannotUse) {
  const auto expect = [](const json& change, ErrorCode code, const std::string& message) {
    const Error error = refused(kLfm2Vl, change);
    EXPECT_EQ(error.code, code) << change;
    EXPECT_NE(error.message.find(message), std::string::npos) << error.message;
  };
  expect({{"min_tiles", 1}}, ErrorCode::kUnsupported, "min_tiles 1");
  expect({{"min_tiles", 11}}, ErrorCode::kBadInput, "min_tiles is greater than max_tiles");
  expect({{"tile_size", 500}}, ErrorCode::kUnsupported, "tile_size 500 is not a multiple of 32");
  expect({{"do_pad", false}}, ErrorCode::kUnsupported, "do_pad");
  expect({{"encoder_patch_size", 257}}, ErrorCode::kBadInput, "from 1 to 256");
  expect({{"max_pixels_tolerance", 0}}, ErrorCode::kBadInput, "up to 1000000");
  expect({{"max_image_tokens", 65536}}, ErrorCode::kBadInput, "patches of 16 x 16 pixels");
  expect({{"min_image_tokens", 65536}}, ErrorCode::kBadInput, "where 65536 are the limit");
  expect({{"encoder_patch_size", 256}, {"tile_size", 1024}}, ErrorCode::kBadInput,
         "where 256 are the limit");
}

const json kGemma4 = {{"image_processor_type", "Gemma4ImageProcessor"},
                      {"processor_class", "Gemma4Processor"}};

TEST(MediaSettings, Gemma4HasBudgetsOfTokens) {
  const Settings released = *settings_from(kGemma4.dump(), "", "d");
  EXPECT_EQ(released.max_patches(), 2520);
  EXPECT_EQ(released.filter, Filter::kBicubic);
  EXPECT_FALSE(released.normalize);
  json fields = kGemma4;
  fields.update({{"max_soft_tokens", 1120}, {"pooling_kernel_size", 2}, {"do_normalize", true}});
  const Settings large = *settings_from(fields.dump(), "", "d");
  EXPECT_EQ(large.max_patches(), 4480);
  EXPECT_TRUE(large.normalize);
  EXPECT_EQ(refused(kGemma4, {{"max_soft_tokens", 256}}).code, ErrorCode::kBadInput);
  EXPECT_EQ(refused(kGemma4, {{"do_resize", false}}).code, ErrorCode::kUnsupported);
  EXPECT_EQ(refused(kGemma4, {{"patch_size", 257}}).code, ErrorCode::kBadInput);
  EXPECT_EQ(refused(kGemma4, {{"pooling_kernel_size", 200}}).code, ErrorCode::kBadInput);
}

// The sizes are those of get_aspect_ratio_preserving_size() of transformers 5.23.
TEST(MediaSettings, Gemma4KeepsTheShapeOfAPicture) {
  const Settings s = *settings_from(kGemma4.dump(), "", "d");
  const auto size = [&](int width, int height) {
    const auto made = gemma4_size({width, height}, s);
    return made ? std::pair(made->width, made->height) : std::pair(0, 0);
  };
  EXPECT_EQ(size(640, 480), std::pair(912, 672));
  EXPECT_EQ(size(1, 1), std::pair(768, 768));
  EXPECT_EQ(size(1000, 1), std::pair(13440, 48));
  EXPECT_EQ(size(1, 300), std::pair(48, 13440));
  EXPECT_EQ(size(200, 1), std::pair(11328, 48));
}

TEST(MediaSettings, TheProcessorFileComesFirst) {
  json inner = kInternVl;
  inner.erase("processor_class");
  inner["max_patches"] = 3;
  const json processor = {{"processor_class", "InternVLProcessor"}, {"image_processor", inner}};
  EXPECT_EQ(settings_from(kSmolVlm.dump(), processor.dump(), "d")->most_patches, 3);
  const json bare = {{"processor_class", "InternVLProcessor"}};
  inner.erase("max_patches");
  EXPECT_EQ(settings_from(inner.dump(), bare.dump(), "d")->most_patches, 12);
}

const json kQwen = {{"image_processor_type", "Qwen2VLImageProcessor"},
                    {"processor_class", "Qwen2_5_VLProcessor"}};

TEST(MediaSettings, NumbersOfPixelsComeFromTwoPlaces) {
  const auto pixels = [](const json& change) {
    json fields = kQwen;
    fields.update(change);
    const auto made = settings_from(fields.dump(), "", "d");
    EXPECT_TRUE(made) << made.error().message;
    return made ? std::pair(made->least_pixels, made->most_pixels) : std::pair(0, 0);
  };
  const json size = {{"size", {{"shortest_edge", 5}, {"longest_edge", 7}}}};
  EXPECT_EQ(pixels(json::object()), std::pair(3136, 1003520));
  EXPECT_EQ(pixels(size), std::pair(5, 7));
  json both = size;
  both["max_pixels"] = 9;  // wins over `size`, whatever the order of the file
  EXPECT_EQ(pixels(both), std::pair(5, 9));
  both["min_pixels"] = 2;
  EXPECT_EQ(pixels(both), std::pair(2, 9));
  EXPECT_EQ(pixels({{"min_pixels", 3}}), std::pair(3, 1003520));
  // Files of older versions, in which the numbers stand in `size` too.
  EXPECT_EQ(
      pixels(
          {{"size", {{"min_pixels", 8}, {"max_pixels", 8}}}, {"min_pixels", 3}, {"max_pixels", 4}}),
      std::pair(3, 4));
}

TEST(MediaSettings, PatchesOfQwenVl) {
  json fields = kQwen;
  fields.update({{"patch_size", 16}, {"merge_size", 3}, {"temporal_patch_size", 1}});
  const auto made = settings_from(fields.dump(), "", "d");
  ASSERT_TRUE(made) << made.error().message;
  EXPECT_TRUE(made->any_shape() && !made->has_patches() && !made->has_mask());
  EXPECT_EQ(made->patch, 16);
  EXPECT_EQ(made->merge, 3);
  EXPECT_EQ(made->frames, 1);
  EXPECT_EQ(made->filter, Filter::kBicubic);
  const json wrong[] = {{{"patch_size", 0}},
                        {{"merge_size", 17}},
                        {{"max_pixels", 1 << 27}},
                        {{"min_pixels", 0}},
                        {{"size", {{"min_pixels", 8}, {"max_pixels", 8}}}},
                        {{"size", {{"shortest_edge", 8}, {"longest_edge", 0}}}}};
  for (const json& change : wrong) {
    EXPECT_EQ(refused(kQwen, change).code, ErrorCode::kBadInput) << change;
  }
  EXPECT_EQ(refused(kQwen, {{"size", {{"height", 8}, {"width", 8}}}}).code,
            ErrorCode::kUnsupported);
  EXPECT_EQ(refused(kQwen, {{"do_resize", false}}).code, ErrorCode::kUnsupported);
}

TEST(MediaSettings, WhatIsNotKnownIsRefusedByName) {
  EXPECT_EQ(refused(kSmolVlm, {{"do_magic", true}}).message,
            "d/preprocessor_config.json: field 'do_magic': not supported");
  EXPECT_EQ(
      refused(kSmolVlm, {{"image_processor_type", "ViTImageProcessor"}}).message,
      "d/preprocessor_config.json: image_processor_type 'ViTImageProcessor' is not supported");
  EXPECT_EQ(refused(kInternVl, {{"processor_class", "GotOcr2Processor"}}).message,
            "d/preprocessor_config.json: processor_class 'GotOcr2Processor' with "
            "GotOcr2ImageProcessorFast is not supported");
  EXPECT_EQ(refused(kSmolVlm, {{"do_rescale", false}}).message,
            "d/preprocessor_config.json: field 'do_rescale': the value 'false' is not supported");
  const json unsupported[] = {
      {{"resample", 4}},         {{"do_pad", false}},         {{"size", {{"shortest_edge", 3}}}},
      {{"max_image_size", 512}}, {{"crop_to_patches", true}}, {{"do_center_crop", true}},
  };
  for (const json& change : unsupported) {
    EXPECT_EQ(refused(kSmolVlm, change).code, ErrorCode::kUnsupported) << change;
  }
  EXPECT_EQ(refused(kInternVl, {{"size", {{"height", 3}, {"width", 4}}}}).code,
            ErrorCode::kUnsupported);
}

TEST(MediaSettings, WrongValuesAreRefused) {
  const json wrong[] = {
      {{"image_mean", {0.5, 0.5}}},
      {{"image_std", {0.5, 0, 0.5}}},
      {{"rescale_factor", 0}},
      {{"size", {{"longest_edge", 5000}}}},
      {{"max_image_size", {{"longest_edge", 0}}}},
      {{"size", {{"longest_edge", -1}}}},
      {{"do_image_splitting", 1}},
      {{"processor_class", 5}},
  };
  for (const json& change : wrong) {
    EXPECT_EQ(refused(kSmolVlm, change).code, ErrorCode::kBadInput) << change;
  }
  EXPECT_EQ(refused(kInternVl, {{"min_patches", 5}, {"max_patches", 4}}).message,
            "d/preprocessor_config.json: min_patches is greater than max_patches");
  EXPECT_EQ(settings_from("[]", "", "d").error().code, ErrorCode::kBadInput);
  EXPECT_EQ(settings_from("{", "", "d").error().code, ErrorCode::kBadInput);
}

const json kPixtral = {{"image_processor_type", "PixtralImageProcessorFast"},
                       {"processor_class", "PixtralProcessor"},
                       {"patch_size", {{"height", 2}, {"width", 2}}}};

// The processor has patches of its own, whatever its image processor says.
TEST(MediaSettings, PixtralTakesPatchesFromTheProcessor) {
  const Settings alone = *settings_from(kPixtral.dump(), "", "d");
  EXPECT_EQ(std::tuple(alone.patch, alone.merge, alone.frames), std::tuple(16, 1, 1));
  EXPECT_EQ(alone.fixed, (Size{1024, 1024}));
  EXPECT_TRUE(alone.any_shape());
  json processor = {
      {"processor_class", "PixtralProcessor"}, {"patch_size", 14}, {"spatial_merge_size", 2}};
  json fields = kPixtral;
  fields["size"] = {{"height", 300}, {"width", 200}};
  const Settings both = *settings_from(fields.dump(), processor.dump(), "d");
  EXPECT_EQ(std::tuple(both.patch, both.merge), std::tuple(14, 2));
  EXPECT_EQ(both.fixed, (Size{200, 300}));
  processor["patch_size"] = 0;
  EXPECT_EQ(settings_from(fields.dump(), processor.dump(), "d").error().message,
            "d/processor_config.json: field 'patch_size': not a whole number from 1 to 256");
  processor["patch_size"] = 200;
  EXPECT_EQ(settings_from(fields.dump(), processor.dump(), "d").error().message,
            "d/processor_config.json: blocks of 2 x 2 patches of 200 pixels");
  EXPECT_EQ(refused(kPixtral, {{"do_pad", false}}).code, ErrorCode::kUnsupported);
  EXPECT_EQ(refused(kPixtral, {{"size", {{"longest_edge", 8193}}}}).code, ErrorCode::kBadInput);
}

TEST(MediaSettings, PaliGemmaStatesTheTokensOfATile) {
  json fields = {{"image_processor_type", "SiglipImageProcessor"},
                 {"processor_class", "PaliGemmaProcessor"},
                 {"image_seq_length", 256}};
  EXPECT_EQ(settings_from(fields.dump(), "", "d")->tile_tokens, 256);
  fields.erase("image_seq_length");
  EXPECT_EQ(settings_from(fields.dump(), "", "d")->tile_tokens, 0);
  EXPECT_EQ(refused(fields, {{"image_seq_length", 0}}).code, ErrorCode::kBadInput);
}

TEST(MediaSettings, ACheckpointWithoutAPreprocessorFile) {
  const TempDir dir;
  const auto settings = load_settings(dir.path());
  ASSERT_FALSE(settings.has_value());
  EXPECT_EQ(settings.error().code, ErrorCode::kIo);
  EXPECT_EQ(settings.error().message, dir / "preprocessor_config.json" +
                                          ": no such file; it says how images become pixel "
                                          "values");
}

}  // namespace
}  // namespace ferry::media::settings_test
