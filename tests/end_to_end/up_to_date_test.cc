// ferry convert --if-changed
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/cli/ferry_process.h"

namespace ferry::up_to_date_test {
namespace {

using Line = std::vector<std::string>;
using Json = nlohmann::json;

Line operator+(Line line, const Line& more) {
  line.insert(line.end(), more.begin(), more.end());
  return line;
}

class IfChanged : public testing::Test {
 protected:
  void SetUp() override {
    source_ = changed_checkpoint(dir_, "llama3_tied", [](TensorFile&) {});
    line_ = {"convert", source_, "-o", dir_ / "b", "--if-changed"};
    ASSERT_EQ(run_ferry_once(line_).code, 0);
    before_ = files_in(dir_ / "b");
  }

  // Runs the line and returns whether it leaves the bundle unchanged. In both cases the bundle must
  // be that of a new conversion.
  bool leaves(const Line& more = {}) {
    const auto was = std::filesystem::last_write_time(dir_ / "b/manifest.json");
    const Outcome outcome = run_ferry_once(line_ + more + Line{"--json"});
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    reason_ = outcome.err;
    const bool up_to_date = outcome.json()["result"]["up_to_date"];
    EXPECT_EQ(up_to_date, std::filesystem::last_write_time(dir_ / "b/manifest.json") == was);
    const TempDir other;
    EXPECT_EQ(run_ferry_once(Line{"convert", source_, "-o", other / "b", "--quiet"} + more).code,
              0);
    EXPECT_EQ(files_in(dir_ / "b"), files_in(other / "b"));
    return up_to_date;
  }
  void expect_reason(const std::string& part) {
    EXPECT_NE(reason_.find("made again: " + part), std::string::npos) << reason_;
  }
  void change_manifest(const std::string& from, const std::string& to) {
    std::string text = before_["manifest.json"];
    const size_t at = text.find(from);
    ASSERT_NE(at, std::string::npos);
    text.replace(at, from.size(), to);
    write_bytes(dir_ / "b/manifest.json", text);
  }

  TempDir dir_;
  std::string source_, reason_;
  Line line_;
  std::map<std::string, std::string> before_;
};

TEST_F(IfChanged, TheSameIsLeftAsItIs) {
  EXPECT_TRUE(leaves());
  EXPECT_EQ(run_ferry(line_).out, (dir_ / "b") + ": up to date\n");
  EXPECT_EQ(run_ferry(line_ + Line{"--threads", "1"}).out, (dir_ / "b") + ": up to date\n");
}

TEST_F(IfChanged, OtherOptionsMakeAnotherBundle) {
  EXPECT_FALSE(leaves({"--dtype", "f16"}));
  expect_reason("it was made with other options");
  EXPECT_TRUE(leaves({"--dtype", "f16"}));
  EXPECT_FALSE(leaves({"--quantize", "8da4w-g32"}));
  EXPECT_TRUE(leaves({"--quantize", "8da4w-g32"}));
}

TEST_F(IfChanged, OneBitOfATensorIsSeen) {
  TensorFile file(source_ + "/model.safetensors");
  std::string bytes = file.bytes_of("model.norm.weight");
  bytes[5] = static_cast<char>(bytes[5] ^ 1);
  file.set_bytes("model.norm.weight", bytes);
  file.write(source_ + "/model.safetensors");
  EXPECT_FALSE(leaves());
  expect_reason("tensor 'model.norm.weight' of the checkpoint has changed");
}

TEST_F(IfChanged, AConfigOfTheSameLengthIsSeen) {
  std::string config = read_bytes(source_ + "/config.json");
  const size_t at = config.find("500000");
  ASSERT_NE(at, std::string::npos);
  config[at] = '4';
  write_bytes(source_ + "/config.json", config);
  EXPECT_FALSE(leaves());
  expect_reason("");
}

TEST_F(IfChanged, AReferenceThatIsAddedIsSeen) {
  EXPECT_FALSE(leaves({"--reference", fixture("llama3_tied/golden.safetensors")}));
  EXPECT_TRUE(leaves({"--reference", fixture("llama3_tied/golden.safetensors")}));
  EXPECT_FALSE(leaves());
}

TEST_F(IfChanged, WhatIsNoBundleAnyMoreIsMadeAgain) {
  change_manifest("llama", "lama!");
  EXPECT_FALSE(leaves());
  std::filesystem::remove(dir_ / "b/config.json");
  EXPECT_FALSE(leaves());
}

TEST_F(IfChanged, NothingButABundleIsReplaced) {
  std::filesystem::create_directory(dir_ / "home");
  write_bytes(dir_ / "home/letter", "mine");
  const Outcome outcome = run_ferry({"convert", source_, "-o", dir_ / "home", "--if-changed"});
  EXPECT_EQ(outcome.code, 6);
  EXPECT_EQ(read_bytes(dir_ / "home/letter"), "mine");
  EXPECT_EQ(run_ferry({"convert", source_, "-n", "--if-changed"}).code, 2);
}

TEST_F(IfChanged, ADryRunSaysWhatWouldBe) {
  EXPECT_EQ(run_ferry(line_ + Line{"-n", "--json"}).json()["result"]["up_to_date"], true);
  const Outcome other = run_ferry(line_ + Line{"-n", "--dtype", "f16", "--json"});
  EXPECT_EQ(other.json()["result"]["up_to_date"], false);
  EXPECT_EQ(files_in(dir_ / "b"), before_);
}

// Files of other formats do not state their sources, so their bytes are compared.
TEST(IfChangedFiles, TheSameAreLeftAndOthersAreMadeAgain) {
  const std::string source = fixture("llama3_tied");
  const std::pair<const char*, Line> cases[] = {
      {"gguf", {"--outtype", "q8_0"}},
      {"pth", {}},
      {"safetensors", {}},
      {"bpte", {"--reference", source + "/golden.safetensors"}}};
  for (const auto& [format, options] : cases) {
    SCOPED_TRACE(format);
    const TempDir dir;
    const std::string out = dir / (std::string("m.") + format);
    const Line line =
        Line{"convert", source, "--to", format, "-o", out, "--if-changed", "--json"} + options;
    const auto up_to_date = [&] {
      const Outcome outcome = run_ferry_once(line);
      EXPECT_EQ(outcome.code, 0) << outcome.err;
      return outcome.json()["result"]["up_to_date"].get<bool>();
    };
    EXPECT_FALSE(up_to_date());
    const std::string bytes = read_bytes(out);
    const auto was = std::filesystem::last_write_time(out);
    EXPECT_TRUE(up_to_date());
    EXPECT_EQ(std::filesystem::last_write_time(out), was);
    for (const size_t at : {size_t{0}, bytes.size() / 2, bytes.size() - 1}) {
      std::string changed = bytes;
      changed[at] = static_cast<char>(changed[at] ^ 1);
      write_bytes(out, changed);
      EXPECT_FALSE(up_to_date()) << at;
      EXPECT_TRUE(read_bytes(out) == bytes) << at;
    }
  }
}

TEST(IfChangedFiles, AFolderHasNoOtherFiles) {
  const TempDir dir;
  const Line line = {"convert", fixture("llama3_tied"), "--to", "hf", "-o", dir / "hf",
                     "--json",  "--if-changed"};
  ASSERT_EQ(run_ferry_once(line).code, 0);
  EXPECT_TRUE(run_ferry_once(line).json()["result"]["up_to_date"]);
  write_bytes(dir / "hf/other.json", "{}");
  const Outcome again = run_ferry_once(line);
  EXPECT_FALSE(again.json()["result"]["up_to_date"]);
  EXPECT_NE(again.err.find("'other.json' is not one of its files"), std::string::npos) << again.err;
  EXPECT_FALSE(std::filesystem::exists(dir / "hf/other.json"));
}

}  // namespace
}  // namespace ferry::up_to_date_test
