// ferry verify --checkpoint: every weight is compared with its source, and outputs with unsharded
// f32 execution.
#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <map>

#include "tests/cli/ferry_process.h"

namespace ferry::verify_checkpoint_test {
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
      {"golden/gpt_oss", {"--dtype", "bf16"}},
      {"llama3_tied", {"--dtype", "bf16", "--kv-dtype", "f16"}},
      {"golden/deepseek_v3", {"--program", "static", "--kv-dtype", "u8"}},
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
    // Tied weights share a segment.
    std::map<std::pair<std::string, int64_t>, int64_t> segments;
    for (const Json& tensor : manifest["tensors"]) {
      segments[{tensor["file"], tensor["offset"]}] = tensor["bytes"];
    }
    int64_t bytes = 0;
    for (const auto& [place, size] : segments) bytes += size;
    EXPECT_EQ(report["tensors"]["bytes"], bytes);
    EXPECT_EQ(report["tensors"]["different"], Json::array());
    EXPECT_EQ(report["programs"]["compared"], manifest["components"][0]["programs"].size());
    EXPECT_EQ(report["programs"]["different"], Json::array());
    EXPECT_EQ(report["metrics"]["greedy_total"], 0);
    EXPECT_FALSE(report["layers"].empty());
  }
}

// The change is so small that the logits stay within every bound.
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

// -- with a reference as well

Line full_proof_line(const std::string& bundle, const std::string& source,
                     const std::string& reference) {
  return {"verify", bundle, "--checkpoint", source, "--reference", reference, "--json"};
}

TEST(VerifyCheckpoint, WithAReferenceProvesAllThreeSteps) {
  for (const char* name : {"llama3_tied", "golden/qwen3_moe", "golden/qwen3_5_moe"}) {
    for (const char* dtype : {"f32", "bf16", "f16"}) {
      SCOPED_TRACE(std::string(name) + " " + dtype);
      const TempDir dir;
      const std::string source = fixture(name);
      const std::string bundle = convert(dir, source, {"--dtype", dtype, "--shards", "2"});
      const Outcome outcome =
          run_ferry(full_proof_line(bundle, source, source + "/golden.safetensors"));
      EXPECT_EQ(outcome.code, 0) << outcome.err;
      const Json report = outcome.json();
      EXPECT_EQ(report["parity"], true);
      EXPECT_EQ(report["f32_path"]["parity"], true);
      EXPECT_GE(report["f32_path"]["tolerance"]["margin"], 1);
      EXPECT_EQ(report["does_not_prove"], Json::array());
      EXPECT_GE(report["proves"].size(), 3u);
    }
  }
}

// The change is far smaller than the rounding error of bf16.
TEST(VerifyCheckpoint, AnotherProgramIsFoundInEveryPrecision) {
  for (const char* dtype : {"f32", "bf16"}) {
    SCOPED_TRACE(dtype);
    const TempDir dir, other;
    const std::string source = fixture("llama3_tied");
    const std::string wrong = changed_config(other, "llama3_tied", {{"rms_norm_eps", 2e-6}});
    const std::string bundle = convert(dir, wrong, {"--dtype", dtype});
    const Outcome outcome =
        run_ferry(full_proof_line(bundle, source, source + "/golden.safetensors"));
    EXPECT_EQ(outcome.code, 1);
    const Json report = outcome.json();
    EXPECT_EQ(report["parity"], false);
    EXPECT_EQ(report["f32_path"]["parity"], true);
    ASSERT_EQ(report["programs"]["different"].size(), 1u);
    const std::string line = report["programs"]["different"][0];
    EXPECT_NE(line.find("layer 0"), std::string::npos) << line;
    EXPECT_NE(line.find("is 2e-06, expected 1e-05"), std::string::npos) << line;
    EXPECT_NE(outcome.err.find("another program"), std::string::npos) << outcome.err;
  }
}

// Bundle and f32 execution agree and are both wrong, as if Ferry misread the config.
TEST(VerifyCheckpoint, AWrongReadingOfTheConfigIsFoundByTheReference) {
  const TempDir dir, other;
  const std::string wrong = changed_config(other, "golden/qwen3", {{"rope_theta", 20000.0}});
  Json config = Json::parse(read_bytes(wrong + "/config.json"));
  if (config.contains("rope_parameters")) config["rope_parameters"]["rope_theta"] = 20000.0;
  write_bytes(wrong + "/config.json", config.dump());
  const std::string bundle = convert(dir, wrong, {"--dtype", "bf16"});
  const Outcome outcome =
      run_ferry(full_proof_line(bundle, wrong, fixture("golden/qwen3") + "/golden.safetensors"));
  EXPECT_EQ(outcome.code, 1);
  const Json report = outcome.json();
  EXPECT_EQ(report["programs"]["different"], Json::array());
  EXPECT_EQ(report["f32_path"]["parity"], false);
  EXPECT_NE(report["f32_path"]["first_divergence"], nullptr);
}

TEST(VerifyCheckpoint, ACheckpointWithNaNStillHasItsWeightsCompared) {
  const TempDir dir, other;
  const std::string bundle = convert(dir, fixture("llama3_tied"), {});
  const std::string wrong = changed_checkpoint(other, "llama3_tied", [](TensorFile& file) {
    std::string bytes = file.bytes_of("model.norm.weight");
    bytes[2] = static_cast<char>(0xc0);  // the bytes of an f32 NaN: 0x7fc0...
    bytes[3] = 0x7f;
    file.set_bytes("model.norm.weight", bytes);
  });
  const Outcome outcome = run_ferry(proof_line(bundle, wrong));
  EXPECT_EQ(outcome.code, 1);
  const Json report = outcome.json();
  EXPECT_EQ(report["tensors"]["different"].size(), 1u);
  EXPECT_NE(report["problem"].get<std::string>().find("not finite"), std::string::npos);
}

TEST(VerifyCheckpoint, ConfigBelongsToCheckpoint) {
  EXPECT_EQ(run_ferry({"verify", "nowhere", "--config", "c.json"}).code, 2);
}

}  // namespace
}  // namespace ferry::verify_checkpoint_test
