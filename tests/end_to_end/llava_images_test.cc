// Images for LLaVA and LFM2-VL: what programs they become, and what is refused.
#include <gtest/gtest.h>

#include "tests/end_to_end/vision_families.h"

namespace ferry::llava_images_test {
namespace {

using namespace vision_families;

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
}  // namespace ferry::llava_images_test
