#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "core/sha256.h"
#include "tests/cli/ferry_process.h"

namespace ferry::verb_preprocess_test {
namespace {

using nlohmann::json;

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
    std::vector<std::string> args;
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
    std::vector<std::string> line = {"preprocess"};
    line.insert(line.end(), args.begin(), args.end());
    const Outcome outcome = run_ferry(line);
    EXPECT_EQ(outcome.code, code) << outcome.err;
    EXPECT_EQ(outcome.error_lines(), 1U) << outcome.err;
    EXPECT_EQ(outcome.out, "");
  }
  EXPECT_FALSE(std::filesystem::exists(dir / "a"));
}

}  // namespace
}  // namespace ferry::verb_preprocess_test
