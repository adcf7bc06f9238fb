// LongRoPE end to end: the factors follow the length of the whole sequence, whatever the lengths of
// calls and context.

#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "tests/cli/ferry_process.h"

namespace ferry::longrope_test {
namespace {

using Json = nlohmann::json;

// The factors change after 24 positions. The prompts of the reference are shorter and longer, and
// one is continued beyond that length.
const char* const kModel = "golden/phi4_mini";
constexpr int kSwitch = 24;

Json verified(const std::string& bundle, const std::string& checkpoint) {
  const Outcome outcome =
      run_ferry({"verify", bundle, "--reference", checkpoint + "/golden.safetensors", "--json"});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  return outcome.json();
}

TEST(LongRopeBundles, IsAtParityWhateverTheLengthOfCalls) {
  const std::string source = fixture(kModel);
  for (const char* prefill : {"1", "3", "7", "16", "24", "25", "96"}) {
    for (const char* shards : {"1", "2"}) {
      SCOPED_TRACE(std::string(prefill) + " tokens a call, shards: " + shards);
      const TempDir dir;
      const Outcome converted = run_ferry({"convert", source, "-o", dir / "b", "--dtype", "f32",
                                           "--prefill-length", prefill, "--shards", shards});
      ASSERT_EQ(converted.code, 0) << converted.err;
      const Json report = verified(dir / "b", source);
      EXPECT_LT(report["metrics"]["max_abs"], 1e-4);
      EXPECT_EQ(report["metrics"]["greedy_match"], report["metrics"]["greedy_total"]);
      // Every position of every prompt is compared, token by token too.
      for (const Json& prompt : report["cases"]) {
        EXPECT_EQ(prompt["steps"]["rows"], prompt["tokens"]);
      }
    }
  }
}

TEST(LongRopeBundles, ConvertSaysWhatAProgramAloneCannotDo) {
  const std::string source = fixture(kModel);
  const auto convert = [&](const TempDir& dir, const char* context, const char* prefill) {
    return run_ferry({"convert", source, "-o", dir / "b", "--context-length", context,
                      "--prefill-length", prefill});
  };
  const auto recorded = [](const TempDir& dir) {
    return Json::parse(read_bytes(dir / "b/manifest.json"))["model"]["rope_switch"];
  };
  const TempDir below, above, tells;
  const Outcome short_only = convert(below, "24", "24");
  EXPECT_EQ(short_only.code, 0);
  EXPECT_EQ(short_only.err.find("more than"), std::string::npos) << short_only.err;
  EXPECT_EQ(recorded(below), nullptr);
  const Outcome both = convert(above, "25", "8");
  EXPECT_EQ(both.code, 0);
  EXPECT_NE(both.err.find("more than 24 tokens"), std::string::npos) << both.err;
  EXPECT_EQ(recorded(above), kSwitch);
  EXPECT_NE(convert(tells, "96", "25").err.find("for prompts of any length"), std::string::npos);
  EXPECT_EQ(recorded(tells), kSwitch);
}

// States are reset at position 0 for both ways to give it. If all long factors are 1, a prompt
// beyond the original length gives what the checkpoint's own RoPE gives.
TEST(LongRopeBundles, StatefulLayersBeginAnewToo) {
  const TempDir dir;
  const std::string source = fixture("golden/qwen3_next_dense");
  std::filesystem::copy(source, dir / "c");
  Json config = Json::parse(read_bytes(source + "/config.json"));
  Json rope = {{"rope_type", "longrope"},
               {"rope_theta", config.value("rope_theta", 0.0)},
               {"attention_factor", 1.0},
               {"original_max_position_embeddings", 4}};
  if (config.contains("rope_parameters")) rope.update(config["rope_parameters"]);
  rope["rope_type"] = "longrope";
  const auto pairs = static_cast<size_t>(config["head_dim"].get<double>() *
                                         rope.value("partial_rotary_factor", 0.25) / 2);
  rope["long_factor"] = std::vector<double>(pairs, 1.0);
  rope["short_factor"] = std::vector<double>(pairs, 3.0);
  config["rope_parameters"] = rope;
  config.erase("rope_scaling");
  config["original_max_position_embeddings"] = 4;
  std::filesystem::remove(dir / "c/config.json");
  write_bytes(dir / "c/config.json", config.dump());
  for (const char* prefill : {"2", "64"}) {
    ASSERT_EQ(run_ferry({"convert", dir / "c", "-o", dir / "b", "--dtype", "f32", "--overwrite",
                         "--prefill-length", prefill})
                  .code,
              0);
    verified(dir / "b", source);
  }
}

// Other runners give plain positions, and the end of the call decides.
TEST(LongRopeBundles, PlainPositionsAndComplementsAgreeWhereACallCanTell) {
  const TempDir dir;
  ASSERT_EQ(run_ferry({"convert", fixture(kModel), "-o", dir / "b", "--dtype", "f32"}).code, 0);
  std::string tokens = "1";
  for (int i = 1; i < kSwitch + 1; ++i) tokens += "," + std::to_string(i % 7 + 3);
  const std::string longer = "i:" + tokens + "@1," + std::to_string(kSwitch + 1);
  const std::string shorter = "i:1,9,4@1,3";
  write_bytes(dir / "script", longer + " i:0@1\n" + longer + " i:-1@1\n" + shorter + " i:0@1\n" +
                                  shorter + " i:-1@1\n");
  const Outcome run = run_ferry({"execute", dir / "b/decoder-00001-of-00001.pte", "--data",
                                 dir / "b/decoder-00001-of-00001.ptd", "--script", dir / "script",
                                 "--outdir", dir / "out"});
  ASSERT_EQ(run.code, 0) << run.err;
  std::vector<std::string> logits;
  for (const char* n : {"0", "1", "2", "3"}) {
    logits.push_back(read_bytes(dir / "out/run" + n + "_out0.bin"));
  }
  EXPECT_TRUE(logits[0] == logits[1]);
  EXPECT_FALSE(logits[2] == logits[3]);
  const Outcome ours = run_ferry(
      {"run", dir / "b", "--tokens", "1,9,4", "--max-new", "1", "--dump-logits", dir / "l"});
  ASSERT_EQ(ours.code, 0) << ours.err;
  const TensorFile dumped(dir / "l");
  EXPECT_TRUE(dumped.data.ends_with(logits[2]));
}

}  // namespace
}  // namespace ferry::longrope_test
