// Gemma 3n with pictures, and with pictures and sounds in one prompt: the answers are those of
// transformers (tests/conformance/make_vision_golden.py). Configs that are not obeyed are refused.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <tuple>
#include <vector>

#include "tests/end_to_end/sound_checkpoints.h"

namespace ferry::gemma3n_pictures_test {
namespace {

using namespace sound_checkpoints;

std::string seeing_gemma3n() { return fixture("vision/gemma3n"); }
const Line kInF32 = {"--dtype", "f32"};

TEST(Gemma3nPictures, AnswersToPicturesAndSoundsAreThoseOfTheReference) {
  const Json answers = Json::parse(read_bytes(seeing_gemma3n() + "/answers.json"));
  for (const Line& options : {Line{}, Line{"--layout", "one-program", "--max-sound", "4"},
                              Line{"--program", "static", "--context-length", "600"}}) {
    SCOPED_TRACE(options.empty() ? "plain" : options.back());
    const TempDir dir;
    const std::string bundle = converted(dir, seeing_gemma3n(), kInF32 + options);
    for (const Json& one : answers) {
      SCOPED_TRACE(one.dump().substr(0, 200));
      const Outcome outcome = run_ferry(
          Line{"--json", "run", bundle, "--greedy", "--max-new", "10"} + prompt_of(dir, one));
      ASSERT_EQ(outcome.code, 0) << outcome.err;
      const Json result = outcome.json()["result"];
      EXPECT_EQ(result["prompt_tokens"], one["ids"]);
      EXPECT_EQ(answered(result), one["tokens"]);
    }
  }
}

TEST(Gemma3nPictures, OneProgramIsProved) {
  const TempDir dir;
  const std::string bundle = converted(
      dir, seeing_gemma3n(), kInF32 + Line{"--layout", "one-program", "--max-sound", "4"});
  const Json report = verified({bundle, "--checkpoint", seeing_gemma3n(), "--reference",
                                seeing_gemma3n() + "/golden.safetensors"});
  EXPECT_EQ(report["result"]["parity"], true);
}

TEST(Gemma3nPictures, EncodersAreBuiltByChoice) {
  const auto roles = [&](const Line& options) {
    const TempDir dir;
    const std::string bundle = converted(dir, seeing_gemma3n(), kInF32 + options);
    const Json manifest = Json::parse(read_bytes(bundle + "/manifest.json"));
    Line names;
    for (const Json& part : manifest["components"]) names.push_back(part["role"]);
    return names;
  };
  const std::string sees = "vision_encoder", hears = "audio_encoder", rows = "token_embedding",
                    text = "text_decoder";
  EXPECT_EQ(roles({}), (Line{sees, hears, rows, text}));
  EXPECT_EQ(roles({"--inputs", "images"}), (Line{sees, rows, text}));
  EXPECT_EQ(roles({"--inputs", "sounds"}), (Line{hears, rows, text}));
  EXPECT_EQ(roles({"--inputs", "text"}), (Line{text}));
}

// Released checkpoints have the fields of both processors in one file, and pixels from 0 to 1.
TEST(Gemma3nPictures, OneFileOfBothProcessorsIsRead) {
  const TempDir dir;
  const std::string folder = dir / "one_file";
  std::filesystem::copy(seeing_gemma3n(), folder);
  const Json files = Json::parse(read_bytes(folder + "/processor_config.json"));
  Json fields = files["feature_extractor"];
  fields.update(files["image_processor"]);
  fields.update({{"image_processor_type", "SiglipImageProcessorFast"},
                 {"feature_extractor_type", "Gemma3nAudioFeatureExtractor"},
                 {"processor_class", "Gemma3nProcessor"},
                 {"do_normalize", false},
                 {"do_convert_rgb", nullptr},
                 {"do_center_crop", nullptr},
                 {"default_to_square", false},
                 {"image_seq_length", 4},
                 {"audio_seq_length", 188},
                 {"resample", 2},
                 {"size", {{"height", 48}, {"width", 48}}}});
  write_bytes(folder + "/preprocessor_config.json", fields.dump());
  write_bytes(folder + "/processor_config.json", Json({{"processor_class", "Gemma3nProcessor"},
                                                       {"image_seq_length", 4},
                                                       {"audio_seq_length", 188}})
                                                     .dump());
  const Outcome outcome = run_ferry({"--json", "preprocess", picture("noise.png"), "--checkpoint",
                                     folder, "-o", dir / "pixels.safetensors"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(outcome.json()["result"]["tensors"][0]["shape"], Json({1, 3, 48, 48}));
  const TensorFile made(dir / "pixels.safetensors");
  const std::string bytes = made.bytes_of("pixel_values");
  std::vector<float> pixels(bytes.size() / sizeof(float));
  std::memcpy(pixels.data(), bytes.data(), bytes.size());
  EXPECT_GE(*std::ranges::min_element(pixels), 0.0F);
  EXPECT_LE(*std::ranges::max_element(pixels), 1.0F);
  const std::string bundle = converted(dir, folder, kInF32);
  const Outcome run = run_ferry({"run", bundle, "--image", picture("noise.png"), "--audio",
                                 sound_file("mono_8.wav"), "--chat", "a", "--max-new", "2"});
  EXPECT_EQ(run.code, 0) << run.err;
}

TEST(Gemma3nPictures, ConfigsThatAreNotObeyedAreRefused) {
  const TempDir dir;
  const std::string block = "/vision_config/model_args/block_args/";
  const std::tuple<std::string, Json, int, const char*> cases[] = {
      {"/vision_config", 3, 3, "vision_config"},
      {"/vision_config/architecture", "resnet50", 4, "mobilenetv5_300m_enc is supported"},
      {"/vision_config/hidden_size", 1024, 4, "gives rows of 2048"},
      {"/vision_config/vocab_offset", 266, 4, "no ids are those of images"},
      {"/vision_soft_tokens_per_image", 256, 4, "the vision tower gives 4 rows"},
      {"/vision_soft_tokens_per_image", 0, 3, "vision_soft_tokens_per_image"},
      {"/image_token_id", 272, 3, "image_token_id"},
      {"/vision_config/model_args", 3, 3, "model_args"},
      {"/vision_config/model_args/features_only", true, 4, "features_only"},
      {"/vision_config/model_args/pad_type", "", 4, "pad_type"},
      {"/vision_config/model_args/in_chans", 1, 4, "in_chans"},
      {"/vision_config/model_args/stem_size", 0, 3, "stem_size"},
      {"/vision_config/model_args/channel_multiplier", 1e9, 3, "channel_multiplier"},
      {"/vision_config/model_args/msfa_indices", Json({0, 9}), 3, "msfa_indices"},
      {"/vision_config/model_args/msfa_indices", Json({4, -1}), 3, "names an output twice"},
      {"/vision_config/model_args/msfa_indices", Json::array(), 3, "names no output"},
      {"/vision_config/model_args/msfa_output_resolution", 1 << 20, 3, "msfa_output_resolution"},
      {"/vision_config/model_args/block_args", Json::array(), 3, "block_args"},
      {block + "0", Json::array(), 3, "block_args[0]"},
      {block + "0/0", 3, 3, "block_args[0][0]"},
      {block + "0/0/block_type", "ir", 4, "er, uir and mqa are supported"},
      {block + "0/0/block_type", 3, 3, "block_type"},
      {block + "0/0/out_chs", 0, 3, "out_chs"},
      {block + "0/0/out_chs", 1e30, 3, "out_chs"},
      {block + "0/0/stride", -2, 3, "stride"},
      {block + "0/0/stride", 1, 4, "first block of a stage"},
      {block + "0/0/exp_ratio", 1e30, 3, "exp_ratio"},
      {block + "0/0/exp_kernel_size", 0, 3, "exp_kernel_size"},
      {block + "0/0/exp_kernel_size", Json({3, 5}), 3, "exp_kernel_size"},
      {block + "0/0/pw_kernel_size", 3, 4, "pw_kernel_size"},
      {block + "0/0/force_in_chs", 8, 4, "force_in_chs"},
      {block + "0/0/se_ratio", 0.25, 4, "se_ratio"},
      {block + "0/0/group_size", 8, 4, "group_size"},
      {block + "0/0/act_layer", "relu", 4, "act_layer"},
      {block + "1/0/dw_kernel_size_start", -3, 3, "dw_kernel_size_start"},
      {block + "1/0/dw_kernel_size_mid", nullptr, 4, "dw_kernel_size_mid"},
      {block + "2/0/block_type", "mqa", 4, "in the first block of a stage"},
      {block + "2/1/num_heads", 1 << 20, 3, "num_heads"},
      {block + "2/1/key_dim", 8, 4, "value_dim"},
      {block + "2/1/kv_stride", 0, 3, "kv_stride"}};
  for (const auto& [key, value, code, message] : cases) {
    SCOPED_TRACE(key + " " + value.dump());
    const std::string folder =
        with_value(dir, seeing_gemma3n(), "config.json", Json::json_pointer(key), value);
    expect_refused({"convert", folder, "-o", dir / "out", "--inputs", "images"}, code, message);
  }
}

// Without --inputs such a tower is left out with a note.
TEST(Gemma3nPictures, ATowerThatIsNotSupportedIsLeftOut) {
  const TempDir dir;
  const std::string folder =
      with_value(dir, seeing_gemma3n(), "config.json",
                 Json::json_pointer("/vision_config/architecture"), "mobilenetv5_base");
  const Outcome outcome = run_ferry({"convert", folder, "-o", dir / "out"});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_NE((outcome.out + outcome.err).find("the programs take text and no images"),
            std::string::npos);
}

TEST(Gemma3nPictures, ProcessorsThatDoNotFitAreRefused) {
  const TempDir dir;
  const std::tuple<const char*, Json, const char*> cases[] = {
      {"/image_processor/size", {{"height", 64}, {"width", 48}}, "size"},
      {"/image_processor/size", {{"height", 1 << 20}, {"width", 1 << 20}}, "size"},
      {"/image_processor/do_rescale", false, "do_rescale"},
      {"/image_processor/tile_size", 3, "tile_size"},
      {"/image_processor/image_processor_type", "Gemma3ImageProcessor", "Gemma3nProcessor"}};
  for (const auto& [key, value, message] : cases) {
    SCOPED_TRACE(std::string(key) + value.dump());
    const std::string folder =
        with_value(dir, seeing_gemma3n(), "processor_config.json", Json::json_pointer(key), value);
    const Outcome outcome = run_ferry({"convert", folder, "-o", dir / "out", "--inputs", "images"});
    EXPECT_GT(outcome.code, 1);
    EXPECT_NE(outcome.err.find(message), std::string::npos) << outcome.err;
  }
  const TempDir made;
  const std::string folder = with_value(dir, seeing_gemma3n(), "processor_config.json",
                                        Json::json_pointer("/image_seq_length"), 5);
  const std::string bundle = converted(made, folder, kInF32);
  const Outcome outcome = run_ferry({"run", bundle, "--image", picture("tiny.png"), "--chat", "a"});
  EXPECT_GT(outcome.code, 1) << outcome.out;
}

}  // namespace
}  // namespace ferry::gemma3n_pictures_test
