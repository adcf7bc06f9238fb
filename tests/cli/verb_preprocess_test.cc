// ferry preprocess: pixel values, prompts with images, and the processors of bundles.
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "core/sha256.h"
#include "tests/cli/checkpoints.h"

namespace ferry::verb_preprocess_test {
namespace {

using nlohmann::json;
using Line = std::vector<std::string>;

Line operator+(Line line, const Line& more) {
  line.insert(line.end(), more.begin(), more.end());
  return line;
}

void expect_refused(const Line& line, int code, const std::string& message) {
  const Outcome outcome = run_ferry(line);
  EXPECT_EQ(outcome.code, code) << outcome.err;
  EXPECT_EQ(outcome.error_lines(), 1U) << outcome.err;
  EXPECT_NE(outcome.err.find(message), std::string::npos) << outcome.err;
}

std::string image(const std::string& name) { return fixture("media/images/" + name); }

std::string digest(const std::string& bytes) {
  return to_hex(sha256(std::as_bytes(std::span(bytes))));
}

json golden() { return json::parse(read_bytes(fixture("media/golden.json"))); }

TEST(Preprocess, WritesThePixelValuesOfTheReference) {
  const TempDir dir;
  for (const std::string backend : {"torchvision", "pil"}) {
    const std::string out = dir / backend;
    const Outcome outcome = run_ferry({"preprocess", image("wide_6x1.png"), "--checkpoint",
                                       fixture("media/smolvlm"), "-o", out, "--backend", backend});
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_EQ(outcome.out, image("wide_6x1.png") +
                               ": 360 x 60: 3 tiles: 1 rows of 2 and the whole image\n" + out +
                               ": pixel_values f32 [1, 3, 3, 32, 32], pixel_attention_mask i64 "
                               "[1, 3, 32, 32]\n");
    const TensorFile file(out);
    EXPECT_EQ(file.header["pixel_values"]["shape"].dump(), "[1,3,3,32,32]");
    EXPECT_EQ(digest(file.bytes_of("pixel_values")),
              golden()["images"]["wide_6x1.png"]["smolvlm_tiny_split"][backend]["sha256_f32"]);
    EXPECT_EQ(file.header["pixel_attention_mask"]["dtype"], "I64");
  }
}

TEST(Preprocess, JoinsTheImagesOfOnePrompt) {
  const TempDir dir;
  const Outcome outcome =
      run_ferry({"--json", "preprocess", image("wide_6x1.png"), image("noise.png"), "--checkpoint",
                 fixture("media/smolvlm"), "-o", dir / "both"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(outcome.json()["images"][1]["tiles"], 5);
  EXPECT_EQ(outcome.json()["tensors"][0]["shape"], json({1, 8, 3, 32, 32}));
  const json expected = golden()["batch"]["arrays"]["one_sample_two_images.pixel_values"];
  EXPECT_EQ(digest(TensorFile(dir / "both").bytes_of("pixel_values")), expected["sha256"]);
}

TEST(Preprocess, InternVlHasNoMask) {
  const TempDir dir;
  const Outcome outcome = run_ferry({"preprocess", image("alpha.png"), "--checkpoint",
                                     fixture("media/internvl"), "-o", dir / "out"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const TensorFile file(dir / "out");
  EXPECT_FALSE(file.header.contains("pixel_attention_mask"));
  EXPECT_EQ(digest(file.bytes_of("pixel_values")),
            golden()["images"]["alpha.png"]["internvl_tiny_crop4"]["torchvision"]["sha256_f32"]);
}

TEST(Preprocess, RefusalsAreOneLine) {
  const TempDir dir;
  const std::string taken = dir.write("taken", "x"), checkpoint = fixture("media/smolvlm");
  const std::string huge = fixture("media/damaged/huge_60000.png");
  struct Case {
    Line args;
    int code;
  };
  const Case cases[] = {
      {{huge, "--checkpoint", checkpoint, "-o", dir / "a"}, 3},
      {{fixture("media/damaged/truncated.jpg"), "--checkpoint", checkpoint, "-o", dir / "a"}, 3},
      {{image("tiny.png"), huge, "--checkpoint", checkpoint, "-o", dir / "a"}, 3},
      {{fixture("media/unsupported/gif.gif"), "--checkpoint", checkpoint, "-o", dir / "a"}, 4},
      {{image("tiny.png"), "--checkpoint", fixture("llama3_tied"), "-o", dir / "a"}, 5},
      {{image("tiny.png"), "--checkpoint", checkpoint, "-o", taken}, 6},
      {{dir / "absent.png", "--checkpoint", checkpoint, "-o", dir / "a"}, 5},
      {{image("tiny.png"), "-o", dir / "a"}, 2},
      {{image("tiny.png"), "--checkpoint", checkpoint}, 2},
      {{"--checkpoint", checkpoint, "-o", dir / "a"}, 2},
      {{image("tiny.png"), "--checkpoint", checkpoint, "-o", dir / "a", "--backend", "x"}, 2},
  };
  for (const auto& [args, code] : cases) {
    const Outcome outcome = run_ferry(Line{"preprocess"} + args);
    EXPECT_EQ(outcome.code, code) << outcome.err;
    EXPECT_EQ(outcome.error_lines(), 1U) << outcome.err;
    EXPECT_EQ(outcome.out, "");
  }
  EXPECT_FALSE(std::filesystem::exists(dir / "a"));
}

// -- prompts

json prompts() { return json::parse(read_bytes(fixture("media/prompts.json"))); }

// Expands a list of ids, in which [id, n] stands for n times the id.
std::vector<int64_t> unrolled(const json& ids) {
  std::vector<int64_t> out;
  for (const json& id : ids) {
    const bool run = id.is_array();
    out.insert(out.end(), run ? id[1].get<size_t>() : 1, (run ? id[0] : id).get<int64_t>());
  }
  return out;
}

Line images_of(const json& row) {
  Line line = {"--json", "preprocess"};
  for (const std::string name : row["images"]) line.push_back(image(name));
  return line;
}

TEST(PreprocessPrompt, GivesTheInputsOfTheReference) {
  const TempDir dir;
  const json all = prompts();
  for (const auto& [processor, cases] : all.items()) {
    for (const json& row : cases["cases"]) {
      const std::string name = processor + "." + row["case"].get<std::string>();
      SCOPED_TRACE(name);
      const std::string chat = dir.write(name + ".json", row["chat"].dump());
      const Outcome made =
          run_ferry(images_of(row) + Line{"--checkpoint", fixture("media/" + processor), "-o",
                                          dir / name, "--messages", chat});
      ASSERT_EQ(made.code, 0) << made.err;
      const json prompt = made.json()["prompt"];
      const std::vector<int64_t> ids = unrolled(row["ids"]);
      EXPECT_EQ(prompt["text"], row["text"]);
      EXPECT_EQ(prompt["input_ids"], json(ids));
      EXPECT_EQ(prompt["tokens_per_tile"], 16);
      for (size_t i = 0; i < row["images"].size(); ++i) {
        const json positions = prompt["tile_positions"][i];
        EXPECT_EQ(positions.size(), made.json()["images"][i]["tiles"]);
        for (const size_t at : positions) EXPECT_EQ(ids[at + 15], prompt["placeholder_id"]);
      }
      const TensorFile file(dir / name);
      const std::string bytes = file.bytes_of("input_ids");
      ASSERT_EQ(bytes.size(), ids.size() * sizeof(int64_t));
      EXPECT_EQ(std::memcmp(bytes.data(), ids.data(), bytes.size()), 0);
      EXPECT_TRUE(file.header.contains("pixel_values"));
    }
  }
}

TEST(PreprocessPrompt, AllFormsOfPrompts) {
  const TempDir dir;
  const Line smolvlm = {"--checkpoint", fixture("media/smolvlm")};
  const std::string picture = image("wide_6x1.png");
  const Outcome chat = run_ferry(Line{"preprocess", picture, "--chat", "Why?"} + smolvlm);
  ASSERT_EQ(chat.code, 0) << chat.err;
  EXPECT_EQ(chat.out, picture +
                          ": 360 x 60: 3 tiles: 1 rows of 2 and the whole image\n"
                          "prompt: 77 tokens, 48 of them for 3 tiles\n");
  const Outcome plain =
      run_ferry(Line{"--json", "preprocess", "--prompt", "Why?", "-o", dir / "ids"} + smolvlm);
  ASSERT_EQ(plain.code, 0) << plain.err;
  EXPECT_EQ(plain.json()["prompt"]["text"], "Why?");
  const TensorFile file(dir / "ids");
  EXPECT_EQ(file.header.size(), 1U);
  EXPECT_EQ(file.header["input_ids"]["shape"][1], plain.json()["prompt"]["input_ids"].size());
}

TEST(PreprocessPrompt, RefusalsAreOneLine) {
  const TempDir dir;
  const std::string picture = image("tiny.png");
  const std::string messages = dir.write("m.json", R"([{"role": "user", "content": "Hello"}])");
  const Line smolvlm = {"preprocess", "--checkpoint", fixture("media/smolvlm")};
  struct Case {
    Line args;
    int code;
    std::string message;
  };
  const Case cases[] = {
      {{"--chat", "<image>"}, 3, "--chat: 1 placeholder '<image>' in the prompt for 0 images"},
      {{picture, "--prompt", "<image> <image>"}, 3, "--prompt: 2 placeholders '<image>'"},
      {{"--messages", messages}, 3, messages + ": message 1: its content is a string"},
      {{"--messages", dir / "absent"}, 5, "absent"},
      {{"--messages", picture}, 3, picture},
      {{"--chat", "a", "--prompt", "b"}, 2, "exclude each other"},
      {{"--chat", "\xff"}, 2, "--chat: not UTF-8"},
      {{}, 2, "an IMAGE, a video or a prompt is required"},
      {{"--chat", "a", "--checkpoint", fixture("llama3_tied")}, 2, "checkpoint"},
  };
  for (const auto& [args, code, message] : cases) {
    expect_refused(smolvlm + args, code, message);
  }
  const Outcome text_model =
      run_ferry({"preprocess", "--chat", "a", "--checkpoint", fixture("llama3_tied")});
  EXPECT_EQ(text_model.code, 3);
  EXPECT_NE(text_model.err.find("has no image processor"), std::string::npos) << text_model.err;
}

// A bundle contains the files that prompts with images need.
TEST(PreprocessPrompt, FromABundle) {
  const TempDir dir;
  const std::string source = changed_checkpoint(dir, "llama3_tied", [](TensorFile&) {});
  for (const auto& entry : std::filesystem::directory_iterator(fixture("media/internvl"))) {
    std::filesystem::copy(entry.path(), source);
  }
  ASSERT_EQ(run_ferry({"convert", source, "-o", dir / "b"}).code, 0);
  const Line rest = {"preprocess", image("square.png"), "--chat", "Why?", "--json"};
  const Outcome bundle = run_ferry(rest + Line{"--checkpoint", dir / "b"});
  ASSERT_EQ(bundle.code, 0) << bundle.err;
  EXPECT_EQ(bundle.out, run_ferry(rest + Line{"--checkpoint", source}).out);
  EXPECT_EQ(run_ferry({"check", dir / "b"}).code, 0);
}

// -- bundles

void convert(const std::string& source, const std::string& bundle) {
  const Outcome outcome = run_ferry({"convert", source, "-o", bundle});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
}

TEST(PreprocessBundle, GivesWhatItsCheckpointGives) {
  for (const std::string name : {"smolvlm", "internvl3_hf"}) {
    const TempDir dir;
    const std::string source = vision_checkpoint(dir, name);
    convert(source, dir / "b");
    const auto make = [&](const std::string& option, const std::string& path,
                          const std::string& out) {
      const Outcome outcome = run_ferry({"preprocess", image("wide_6x1.png"), option, path,
                                         "--chat", "Why?", "-o", dir / out, "--quiet"});
      EXPECT_EQ(outcome.code, 0) << outcome.err;
      return read_bytes(dir / out);
    };
    EXPECT_EQ(make("--bundle", dir / "b", "one"), make("--checkpoint", source, "two"));
  }
}

TEST(PreprocessBundle, MustFitItsVisionEncoder) {
  const TempDir dir;
  const std::string picture = image("tiny.png");
  const std::string tiles = vision_checkpoint(dir, "smolvlm", "tiles");
  json preprocessor = json::parse(read_bytes(tiles + "/preprocessor_config.json"));
  preprocessor["max_image_size"]["longest_edge"] = 48;
  write_bytes(tiles + "/preprocessor_config.json", preprocessor.dump());
  convert(tiles, dir / "b");
  expect_refused({"preprocess", picture, "--bundle", dir / "b", "-o", dir / "p"}, 3,
                 "makes tiles of 48 pixels a side, the vision encoder takes 32");
  const std::string length = vision_checkpoint(dir, "smolvlm", "length");
  std::filesystem::remove(length + "/processor_config.json");
  convert(length, dir / "c");
  expect_refused({"preprocess", "--bundle", dir / "c", "--chat", "a"}, 3,
                 "the processor has 169 tokens for a tile, the vision encoder 16");
  write_bytes(dir / "c/manifest.json", "{}");
  expect_refused({"preprocess", "--bundle", dir / "c", "--chat", "a"}, 3, "manifest.json");
}

TEST(PreprocessBundle, OptionsThatDoNotFitAreRefused) {
  const TempDir dir;
  convert(fixture("llama3_tied"), dir / "text");
  const Line line = {"preprocess", "--chat", "a"};
  expect_refused(line + Line{"--bundle", dir / "text"}, 2, "takes no images");
  expect_refused(line + Line{"--bundle", dir / "text", "--checkpoint", dir / "text"}, 2,
                 "--checkpoint and --bundle exclude each other");
  expect_refused(line, 2, "--checkpoint DIR or --bundle DIR is required");
  expect_refused(line + Line{"--bundle", dir / "none"}, 5, "none");
  expect_refused(line + Line{"--checkpoint", dir / "text", "-o", dir / "text/p"}, 2,
                 "a bundle has no files but those of its manifest");
}

}  // namespace
}  // namespace ferry::verb_preprocess_test
