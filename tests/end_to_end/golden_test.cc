// Every family end to end, whole and in shards, compared with outputs of the reference
// implementation.

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "tests/cli/ferry_process.h"

namespace ferry::golden_test {
namespace {

using Json = nlohmann::json;

// The reference's own f32 noise is at most 2e-5 for plain models and 1e-4 for delta-rule ones.
double bound_of(const std::string& checkpoint) {
  return checkpoint.find("qwen3_next") != std::string::npos ||
                 checkpoint.find("qwen3_5") != std::string::npos
             ? 1e-3
             : 1e-4;
}

std::vector<std::string> checkpoints() {
  std::vector<std::string> names = {"llama3_tied", "qwen3_5_text", "trained"};
  for (const auto& entry : std::filesystem::directory_iterator(fixture("golden"))) {
    names.push_back("golden/" + entry.path().filename().string());
  }
  std::ranges::sort(names);
  return names;
}

// Expects parity with all outputs of the reference and with its greedy tokens.
void expect_parity(const std::string& bundle, const std::string& checkpoint) {
  const std::string reference = fixture(checkpoint) + "/golden.safetensors";
  const Outcome verified = run_ferry({"verify", bundle, "--reference", reference, "--json"});
  EXPECT_EQ(verified.code, 0) << verified.err;
  const Json report = verified.json();
  EXPECT_LT(report["metrics"]["max_abs"], bound_of(checkpoint));
  EXPECT_EQ(report["metrics"]["top1_agreement"], 1.0);
  EXPECT_EQ(report["metrics"]["greedy_match"], report["metrics"]["greedy_total"]);
  EXPECT_GE(report["metrics"]["greedy_total"], 16);
}

class GoldenTest : public testing::TestWithParam<std::string> {};

TEST_P(GoldenTest, IsAtParityWholeAndShardedAndBitEqualBetweenThem) {
  const std::string source = fixture(GetParam());
  std::string whole;
  for (const char* shards : {"1", "2"}) {
    SCOPED_TRACE(shards);
    const TempDir dir;
    const Outcome converted =
        run_ferry({"convert", source, "-o", dir / "b", "--dtype", "f32", "--shards", shards});
    ASSERT_EQ(converted.code, 0) << converted.err;

    // The logits of the sharded bundle equal those of the whole one, so one of them is verified.
    if (whole.empty()) expect_parity(dir / "b", GetParam());

    const std::string logits = dir / "logits.safetensors";
    const Outcome run = run_ferry({"run", dir / "b", "--tokens", "1,5,9,13,17,21,25,29",
                                   "--max-new", "6", "--ignore-eos", "--dump-logits", logits});
    ASSERT_EQ(run.code, 0) << run.err;
    if (whole.empty()) {
      whole = read_bytes(logits);
    } else {
      EXPECT_TRUE(whole == read_bytes(logits)) << "sharded logits differ";
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Families, GoldenTest, testing::ValuesIn(checkpoints()),
                         [](const auto& test) {
                           std::string name = test.param.substr(test.param.rfind('/') + 1);
                           return name;
                         });

}  // namespace
}  // namespace ferry::golden_test
