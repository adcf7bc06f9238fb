// ferry preprocess --bundle: the inputs of a bundle's vision encoder and decoder.
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/cli/vision_checkpoint.h"

namespace ferry::preprocess_bundle_test {
namespace {

using Json = nlohmann::json;
using Line = std::vector<std::string>;

void convert(const std::string& source, const std::string& bundle) {
  const Outcome outcome = run_ferry({"convert", source, "-o", bundle});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
}

void expect_refused(const Line& line, int code, const std::string& message) {
  const Outcome outcome = run_ferry(line);
  EXPECT_EQ(outcome.code, code) << outcome.err;
  EXPECT_EQ(outcome.error_lines(), 1U) << outcome.err;
  EXPECT_NE(outcome.err.find(message), std::string::npos) << outcome.err;
}

TEST(PreprocessBundle, GivesWhatItsCheckpointGives) {
  for (const std::string name : {"smolvlm", "internvl3_hf"}) {
    const TempDir dir;
    const std::string source = vision_checkpoint(dir, name);
    convert(source, dir / "b");
    const auto make = [&](const std::string& option, const std::string& path,
                          const std::string& out) {
      const Outcome outcome = run_ferry({"preprocess", fixture("media/images/wide_6x1.png"), option,
                                         path, "--chat", "Why?", "-o", dir / out, "--quiet"});
      EXPECT_EQ(outcome.code, 0) << outcome.err;
      return read_bytes(dir / out);
    };
    EXPECT_EQ(make("--bundle", dir / "b", "one"), make("--checkpoint", source, "two"));
  }
}

TEST(PreprocessBundle, MustFitItsVisionEncoder) {
  const TempDir dir;
  const std::string image = fixture("media/images/tiny.png");
  const std::string tiles = vision_checkpoint(dir, "smolvlm", "tiles");
  Json preprocessor = Json::parse(read_bytes(tiles + "/preprocessor_config.json"));
  preprocessor["max_image_size"]["longest_edge"] = 48;
  write_bytes(tiles + "/preprocessor_config.json", preprocessor.dump());
  convert(tiles, dir / "b");
  expect_refused({"preprocess", image, "--bundle", dir / "b", "-o", dir / "p"}, 3,
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
  const auto with = [&](const Line& more) {
    Line all = line;
    all.insert(all.end(), more.begin(), more.end());
    return all;
  };
  expect_refused(with({"--bundle", dir / "text"}), 2, "takes no images");
  expect_refused(with({"--bundle", dir / "text", "--checkpoint", dir / "text"}), 2,
                 "--checkpoint and --bundle exclude each other");
  expect_refused(line, 2, "--checkpoint DIR or --bundle DIR is required");
  expect_refused(with({"--bundle", dir / "none"}), 5, "none");
  expect_refused(with({"--checkpoint", dir / "text", "-o", dir / "text/p"}), 2,
                 "a bundle has no files but those of its manifest");
}

}  // namespace
}  // namespace ferry::preprocess_bundle_test
