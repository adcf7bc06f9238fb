// Videos as folders of frames: tensors and prompts of the processors, answers and proofs.
#include <gtest/gtest.h>

#include <filesystem>

#include "core/sha256.h"
#include "tests/end_to_end/vision_families.h"

namespace ferry::videos_test {
namespace {

using namespace vision_families;

const std::string kFrames = fixture("video/frames");
const Line kVideo = {"--video", kFrames, "--video-fps", "2.5"};

std::string digest(const std::string& bytes) {
  return to_hex(sha256(std::as_bytes(std::span(bytes))));
}

// Copies the checkpoint of a family, with a processor whose videos are small.
std::string checkpoint_of(const TempDir& dir, const std::string& family) {
  const std::string path = dir / family;
  std::filesystem::copy(source_of(family), path);
  for (const char* name : {"processor_config.json", "chat_template.jinja"}) {
    write_bytes(path + "/" + name, read_bytes(fixture("video/processors/" + family + "/" + name)));
  }
  return path;
}

// Inputs that transformers' processors make of the frames (tests/conformance/make_video_golden.py).
TEST(Videos, TensorsAndIdsAreThoseOfTheReference) {
  const Json golden = Json::parse(read_bytes(fixture("video/texts.json")));
  ASSERT_EQ(golden["cases"].size(), 7U);
  for (const auto& [name, one] : golden["cases"].items()) {
    SCOPED_TRACE(name);
    const TempDir dir;
    write_bytes(dir / "chat.json",
                Json{{"messages", one["chat"]}, {"add_generation_prompt", true}}.dump());
    const std::string processor = fixture("video/processors/" + name);
    const Line line = Line{"--json", "preprocess", "--checkpoint", processor, "-o", dir / "o"} +
                      Line{"--messages", dir / "chat.json"} + kVideo;
    const Outcome outcome = run_ferry(line);
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    const TensorFile made(dir / "o");
    EXPECT_EQ(ids_of(made, "input_ids"), one["ids"].get<std::vector<int64_t>>());
    for (const auto& [tensor, wanted] : one["tensors"].items()) {
      EXPECT_EQ(digest(made.bytes_of(tensor)), wanted["sha256"]) << tensor;
    }
    EXPECT_EQ(outcome.json()["result"]["videos"][0]["frames"], 5);
  }
}

class VideoFamilies : public testing::TestWithParam<const char*> {};

TEST_P(VideoFamilies, StagesAndAnswersAreThoseOfTheReference) {
  const TempDir dir;
  const std::string family = GetParam();
  const std::string source = checkpoint_of(dir, family);
  const std::string bundle = converted(dir, source, kInputs);
  const std::string golden = fixture("video/" + family + "/golden.safetensors");
  const Json report = verified({bundle, "--reference", golden, "--checkpoint", source});
  EXPECT_EQ(report["result"]["verdict"], "parity");
  const TensorFile reference(golden);
  const bool two = family == "qwen2_vl";
  const Line line = Line{"--json", "run", bundle, "--max-new", "8", "--ignore-eos", "--greedy"} +
                    kVideo + (two ? Line{"--video", kFrames} : Line{});
  const Outcome answer = run_ferry(line + Line{"--chat", "What happens?"});
  ASSERT_EQ(answer.code, 0) << answer.err;
  EXPECT_EQ(answer.json()["result"]["tokens"], Json(ids_of(reference, "all.greedy_ids")));
  EXPECT_EQ(answer.json()["result"]["prompt_tokens"], Json(ids_of(reference, "all.input_ids")));
}

INSTANTIATE_TEST_SUITE_P(Families, VideoFamilies,
                         testing::Values("qwen2_vl", "qwen2_5_vl", "qwen3_vl", "gemma4",
                                         "llava_onevision"),
                         [](const auto& test) { return std::string(test.param); });

class ImagesBesideVideos : public testing::TestWithParam<const char*> {};

TEST_P(ImagesBesideVideos, StagesAndAnswersAreThoseOfTheReference) {
  const TempDir dir;
  const std::string family = GetParam();
  const std::string source = checkpoint_of(dir, family);
  const std::string bundle = converted(dir, source, kInputs);
  const std::string golden = fixture("video/" + family + "/images.safetensors");
  const Json report = verified({bundle, "--reference", golden, "--checkpoint", source});
  EXPECT_EQ(report["result"]["verdict"], "parity");
  const TensorFile reference(golden);
  const Line line = Line{"--json", "run", bundle, "--max-new", "8", "--ignore-eos", "--greedy"} +
                    kVideo + Line{"--image", fixture("media/images/tiny.png")};
  const Outcome answer = run_ferry(line + Line{"--chat", "What happens?"});
  ASSERT_EQ(answer.code, 0) << answer.err;
  EXPECT_EQ(answer.json()["result"]["tokens"], Json(ids_of(reference, "all.greedy_ids")));
}

INSTANTIATE_TEST_SUITE_P(Families, ImagesBesideVideos,
                         testing::Values("qwen2_5_vl", "gemma4", "llava_onevision"),
                         [](const auto& test) { return std::string(test.param); });

// The positions of this model do not reach so far, and its bundle takes pictures alone.
TEST(Videos, FramesBeyondThePositionsOfATowerAreRefused) {
  const TempDir dir;
  const std::string source = checkpoint_of(dir, "gemma4");
  Json fields = Json::parse(read_bytes(source + "/processor_config.json"));
  fields["video_processor"]["max_soft_tokens"] = 140;
  write_bytes(source + "/processor_config.json", fields.dump());
  const std::string bundle = converted(dir, source, kInputs);
  const Line line = {"run", bundle, "--chat", "a", "--max-new", "1"};
  EXPECT_EQ(run_ferry(line + Line{"--image", fixture("media/images/tiny.png")}).code, 0);
  expect_refused(line + kVideo, 3, "the vision encoder takes");
}

TEST(Videos, TheManifestStatesTheirPlaceholder) {
  const TempDir dir;
  const std::string bundle = converted(dir, checkpoint_of(dir, "qwen2_5_vl"), kInputs);
  const Json model = Json::parse(read_bytes(bundle + "/manifest.json"))["model"];
  EXPECT_EQ(model["video_token_id"], 6);
  EXPECT_EQ(model["tokens_per_second"], 4);
}

TEST(Videos, AVideoJoinsAChat) {
  const TempDir dir;
  const std::string bundle = converted(dir, checkpoint_of(dir, "qwen2_5_vl"), kInputs);
  const Line line = {"run", bundle, "--interactive", "--max-new", "2", "--greedy", "--json"};
  const std::string input = "/video " + kFrames + "\nWhat?\nAnd?\n";
  const Outcome outcome = run_ferry_on(input, line + Line{"--video-fps", "2.5"});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_NE(run_ferry_on(input, line).err.find("/video needs --video-fps"), std::string::npos);
}

TEST(Videos, WhatIsWrongIsRefused) {
  const TempDir dir;
  const std::string bundle = converted(dir, checkpoint_of(dir, "qwen2_vl"), kInputs);
  const Line run = {"run", bundle, "--chat", "a", "--max-new", "1"};
  expect_refused(run + Line{"--video", kFrames}, 2, "--video needs --video-fps");
  expect_refused(run + Line{"--video-fps", "2"}, 2, "--video-fps is for --video");
  expect_refused(run + Line{"--video", kFrames, "--video-fps", "0"}, 3, "0 frames a second");
  expect_refused(run + Line{"--video", fixture("media/unsupported/gif.gif"), "--video-fps", "2"}, 4,
                 "is a GIF; films are not decoded");
  expect_refused(run + Line{"--video", dir / "none", "--video-fps", "2"}, 5, "none");
  expect_refused(Line{"run", bundle, "--prompt", "<|video_pad|><|video_pad|>"} + kVideo, 3,
                 "2 placeholders '<|video_pad|>' in the prompt for 1 video");
  expect_refused(Line{"run", bundle, "--tokens", "1"} + kVideo, 2, "--video needs --prompt");
  std::filesystem::create_directory(dir / "empty");
  expect_refused(run + Line{"--video", dir / "empty", "--video-fps", "2"}, 3,
                 "a folder of 0 frames");
}

TEST(Videos, OtherProcessorsRefuseThemByName) {
  const TempDir dir;
  const std::string bundle = convert(dir, "gemma3", kInputs);
  expect_refused(Line{"run", bundle, "--chat", "a"} + kVideo, 4,
                 "videos are not supported with the processor of this model");
  write_bytes(dir / "processor_config.json",
              R"({"video_processor": {"video_processor_type": "VideoLlama3VideoProcessor"}})");
  expect_refused(Line{"preprocess", "--checkpoint", dir / "", "-o", dir / "o"} + kVideo, 4,
                 "videos of 'VideoLlama3VideoProcessor' are not supported");
}

}  // namespace
}  // namespace ferry::videos_test
