// ferry verify --checkpoint: every weight again from its source, and the unsharded f32 path.
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/cli/ferry_process.h"

namespace ferry {
namespace {

using Json = nlohmann::json;
using Line = std::vector<std::string>;

std::string convert(const TempDir& dir, const std::string& source, const Line& options) {
  Line line = {"convert", source, "-o", dir / "b"};
  line.insert(line.end(), options.begin(), options.end());
  const Outcome outcome = run_ferry(line);
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  return dir / "b";
}

Line proof_line(const std::string& bundle, const std::string& source) {
  return {"verify", bundle, "--checkpoint", source, "--json"};
}

struct Variant {
  const char* checkpoint;
  Line options;
};

TEST(VerifyCheckpoint, EveryVariantIsDerivedAgainBitForBit) {
  const std::vector<Variant> variants = {
      {"llama3_tied", {}},
      {"llama3_tied", {"--dtype", "bf16"}},
      {"llama3_tied", {"--shards", "2", "--context-length", "12", "--prefill-length", "3"}},
      {"golden/llama_bias_mqa", {"--dtype", "f16"}},
      {"qwen3_5_text", {"--shards", "4", "--logits", "all"}},
      {"golden/qwen3_next_dense", {"--init-buffers", "all"}},
  };
  for (const Variant& variant : variants) {
    SCOPED_TRACE(variant.checkpoint + testing::PrintToString(variant.options));
    const TempDir dir;
    const std::string source = fixture(variant.checkpoint);
    const std::string bundle = convert(dir, source, variant.options);
    const Outcome outcome = run_ferry(proof_line(bundle, source));
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    const Json report = outcome.json();
    const Json manifest = Json::parse(read_bytes(bundle + "/manifest.json"));
    EXPECT_EQ(report["parity"], true);
    EXPECT_EQ(report["tensors"]["compared"], manifest["tensors"].size());
    EXPECT_EQ(report["tensors"]["different"], Json::array());
    EXPECT_GT(report["metrics"]["greedy_total"], 0);
    EXPECT_FALSE(report["layers"].empty());
  }
}

// So small a change that the logits stay within every bound.
TEST(VerifyCheckpoint, OneChangedValueIsNamed) {
  const TempDir dir, other;
  const std::string source = fixture("llama3_tied");
  const std::string bundle = convert(dir, source, {"--shards", "2"});
  const std::string key = "model.layers.1.self_attn.k_proj.weight";
  const std::string changed = changed_checkpoint(other, "llama3_tied", [&](TensorFile& file) {
    std::string bytes = file.bytes_of(key);
    bytes[40] = static_cast<char>(bytes[40] ^ 1);  // the lowest bit of one value
    file.set_bytes(key, bytes);
  });
  const Outcome outcome = run_ferry(proof_line(bundle, changed));
  EXPECT_EQ(outcome.code, 1);
  const Json report = outcome.json();
  EXPECT_EQ(report["parity"], false);
  ASSERT_EQ(report["tensors"]["different"].size(), 1);
  const std::string line = report["tensors"]["different"][0];
  EXPECT_NE(line.find("'layers.1.attention.wk.weight'"), std::string::npos) << line;
  EXPECT_NE(line.find("'" + key + "'"), std::string::npos) << line;
  EXPECT_NE(line.find("at byte 40"), std::string::npos) << line;
  EXPECT_EQ(outcome.error_lines(), 1u) << outcome.err;
}

TEST(VerifyCheckpoint, AnotherModelIsAnError) {
  const TempDir dir;
  const std::string bundle = convert(dir, fixture("llama3_tied"), {"--context-length", "16"});
  const Outcome outcome = run_ferry(proof_line(bundle, fixture("qwen3_5_text")));
  EXPECT_EQ(outcome.code, 3);
  EXPECT_NE(outcome.err.find("another model"), std::string::npos) << outcome.err;
}

TEST(VerifyCheckpoint, NothingStaysInTheTemporaryDirectory) {
  const TempDir dir, scratch;
  const std::string source = fixture("llama3_tied");
  const std::string bundle = convert(dir, source, {});
  ::setenv("TMPDIR", (scratch / ".").c_str(), 1);
  const Outcome outcome = run_ferry(proof_line(bundle, source));
  ::unsetenv("TMPDIR");
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_TRUE(std::filesystem::is_empty(scratch / "."));
}

TEST(VerifyCheckpoint, OptionsThatExcludeEachOther) {
  const Line base = {"verify", "nowhere"};
  for (const Line& more :
       std::vector<Line>{{"--checkpoint", "a", "--reference", "b"}, {"--config", "c.json"}}) {
    Line line = base;
    line.insert(line.end(), more.begin(), more.end());
    EXPECT_EQ(run_ferry(line).code, 2);
  }
}

}  // namespace
}  // namespace ferry
