#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <span>

#include "core/sha256.h"
#include "tests/cli/ferry_process.h"

namespace ferry::verb_verify_test {
namespace {

using Json = nlohmann::json;
using Line = std::vector<std::string>;

// Converts a checkpoint directory and returns the bundle.
std::string convert(const TempDir& dir, const std::string& source, const Line& options = {}) {
  Line line = {"convert", source, "-o", dir / "b"};
  line.insert(line.end(), options.begin(), options.end());
  const Outcome outcome = run_ferry(line);
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  return dir / "b";
}

Line verify_line(const std::string& bundle, const std::string& name) {
  return {"verify", bundle, "--reference", fixture(name + "/golden.safetensors"), "--json"};
}

std::string floats(size_t count, float value) {
  std::string bytes(count * sizeof value, '\0');
  for (size_t i = 0; i < count; ++i) std::memcpy(&bytes[i * sizeof value], &value, sizeof value);
  return bytes;
}

struct Variant {
  const char* checkpoint;
  Line options;
  double bound;  // bound on the difference of logits; for f32 it is the noise of the golden outputs
};

TEST(Verify, EveryLosslessVariantIsAtParity) {
  const std::vector<Variant> variants = {
      {"llama3_tied", {}, 1e-4},
      {"llama3_tied", {"--shards", "2"}, 1e-4},
      {"llama3_tied", {"--logits", "all"}, 1e-4},
      {"llama3_tied", {"--prefill-length", "5"}, 1e-4},
      {"llama3_tied", {"--init-buffers", "all", "--context-length", "40"}, 1e-4},
      {"qwen3_5_text", {}, 1e-3},
      {"qwen3_5_text", {"--shards", "4"}, 1e-3},
      {"qwen3_5_text", {"--logits", "all", "--prefill-length", "7"}, 1e-3},
      {"qwen3_5_text", {"--init-buffers", "state"}, 1e-3},
  };
  for (const Variant& variant : variants) {
    SCOPED_TRACE(variant.checkpoint + testing::PrintToString(variant.options));
    const TempDir dir;
    const std::string bundle = convert(dir, fixture(variant.checkpoint), variant.options);
    const Outcome outcome = run_ferry(verify_line(bundle, variant.checkpoint));
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    const Json report = outcome.json();
    EXPECT_EQ(report["parity"], true);
    EXPECT_EQ(report["tolerance"]["source"], "noise");
    EXPECT_GT(report["tolerance"]["margin"], 2);
    EXPECT_LT(report["metrics"]["max_abs"], variant.bound);
    EXPECT_EQ(report["metrics"]["top1_agreement"], 1.0);
    EXPECT_EQ(report["metrics"]["greedy_match"], report["metrics"]["greedy_total"]);
    EXPECT_GE(report["metrics"]["greedy_total"], 16);
    EXPECT_EQ(report["first_divergence"], nullptr);
  }
}

// The HDF5 file holds the same outputs of the short prompt, and more outputs of the long prompt.
TEST(Verify, AReferenceInHdf5GivesTheSameReport) {
  const TempDir dir;
  const std::string bundle =
      convert(dir, fixture("qwen3_5_text"), {"--reference", fixture("hdf5/golden.h5")});
  EXPECT_EQ(read_bytes(bundle + "/reference.h5"), read_bytes(fixture("hdf5/golden.h5")));
  const Json hdf5 = run_ferry({"verify", bundle, "--json"}).json();
  const Json safetensors = run_ferry(verify_line(bundle, "qwen3_5_text")).json();
  EXPECT_EQ(hdf5["parity"], true);
  ASSERT_EQ(hdf5["cases"].size(), 2u);
  EXPECT_EQ(hdf5["cases"][1]["prompt"], "short");
  EXPECT_EQ(hdf5["cases"][1], safetensors["cases"][1]);
  EXPECT_GT(hdf5["cases"][0]["layers"].size(), safetensors["cases"][0]["layers"].size());
  EXPECT_EQ(run_ferry({"check", bundle}).code, 0);
}

TEST(Verify, ComparesEveryTensorOfTheReference) {
  const TempDir dir;
  const Json report =
      run_ferry(verify_line(convert(dir, fixture("qwen3_5_text")), "qwen3_5_text")).json();
  std::vector<std::string> layers;
  for (const Json& layer : report["layers"]) layers.push_back(layer["name"]);
  const std::vector<std::string> expected = {
      "hidden_states.0",    "cache.0.conv_state", "cache.0.recurrent_state",
      "hidden_states.1",    "cache.1.conv_state", "cache.1.recurrent_state",
      "hidden_states.2",    "cache.2.conv_state", "cache.2.recurrent_state",
      "hidden_states.3",    "cache.3.key",        "cache.3.value",
      "last_layer_prenorm", "hidden_states.4"};
  EXPECT_EQ(layers, expected);
  ASSERT_EQ(report["cases"].size(), 2U);
  const Json& brief = report["cases"][1];
  EXPECT_EQ(brief["prompt"], "short");
  EXPECT_EQ(brief["not_compared"], Json::array());
  EXPECT_EQ(brief["steps"]["rows"], 24);
  EXPECT_EQ(brief["prefill"]["rows"], 1);
  EXPECT_EQ(brief["greedy"]["rows"], 16);
  // The distance of the reference from the f64 logits is a property of the reference file.
  EXPECT_LT(brief["f64"]["reference_max_abs"], 1e-4);
  EXPECT_GT(brief["f64"]["reference_max_abs"], 0);
}

TEST(Verify, AllRowsOfAPrefillAreComparedWhereTheBundleHasThem) {
  const TempDir dir;
  const Json report =
      run_ferry(
          verify_line(convert(dir, fixture("llama3_tied"), {"--logits", "all"}), "llama3_tied"))
          .json();
  EXPECT_EQ(report["cases"][0]["prefill"]["rows"], 24);
}

TEST(Verify, NamesTheFirstLayerThatDiverges) {
  const TempDir dir;
  const std::string source = changed_checkpoint(dir, "qwen3_5_text", [](TensorFile& file) {
    const std::string name = "model.layers.2.mlp.down_proj.weight";
    const size_t size = file.bytes_of(name).size();
    file.set_bytes(name, floats(size / 4, 0.01F));
  });
  const Outcome outcome = run_ferry(verify_line(convert(dir, source), "qwen3_5_text"));
  EXPECT_EQ(outcome.code, 1);
  const Json report = outcome.json();
  EXPECT_EQ(report["parity"], false);
  EXPECT_EQ(report["first_divergence"], Json({{"layer", 2}, {"tensor", "hidden_states.3"}}));
  EXPECT_NE(outcome.err.find("layer 2"), std::string::npos) << outcome.err;
}

// The hidden states of trained models have a first row that is a thousand times larger than the
// others. A bound by the largest value of a tensor would hide this error until a later layer.
TEST(Verify, ARowOfAMatrixTimesAHundredthMoreIsFoundInItsLayer) {
  const TempDir dir;
  const std::string source = changed_checkpoint(dir, "qwen3_5_text", [](TensorFile& file) {
    const std::string name = "model.layers.1.mlp.gate_proj.weight";
    std::string bytes(file.bytes_of(name));
    float value;
    for (size_t at = 0; at < 64 * sizeof value; at += sizeof value) {
      std::memcpy(&value, &bytes[at], sizeof value);
      value *= 1.01F;
      std::memcpy(&bytes[at], &value, sizeof value);
    }
    file.set_bytes(name, bytes);
  });
  const Outcome outcome = run_ferry(verify_line(convert(dir, source), "qwen3_5_text"));
  EXPECT_EQ(outcome.code, 1);
  EXPECT_EQ(outcome.json()["first_divergence"]["layer"], 1) << outcome.out;
}

TEST(Verify, EveryTensorHasNoiseABoundAndAMargin) {
  const TempDir dir;
  Line line = verify_line(convert(dir, fixture("llama3_tied")), "llama3_tied");
  line.insert(line.end(), {"--checkpoint", fixture("llama3_tied")});
  const Json report = run_ferry(line).json();
  for (const Json& layer : report["f32_path"]["layers"]) {
    EXPECT_GE(layer["noise"], 0) << layer;
    EXPECT_DOUBLE_EQ(layer["bound"].get<double>(), 32 * layer["noise"].get<double>());
    EXPECT_GT(layer["margin"], 1) << layer;
  }
  EXPECT_EQ(report["verdict"], "parity");
  // The distance of the reference from the model in f64 is a few times the noise.
  EXPECT_EQ(report["f64_path"]["tolerance"]["source"], "none");
  EXPECT_GT(report["f64_path"]["tolerance"]["noise_ratio"], 0);
  EXPECT_LT(report["f64_path"]["tolerance"]["noise_ratio"], 16);
}

// 4-bit codes lose more precision than most mistakes do.
TEST(Verify, AReferenceAloneDoesNotProveFourBits) {
  const TempDir dir;
  const std::string bundle = convert(dir, fixture("trained"), {"--quantize", "8da4w"});
  Line line = verify_line(bundle, "trained");
  const Outcome alone = run_ferry(line);
  const Json report = alone.json();
  const double telling = report["in_f32"]["metrics"]["sqnr_db"];
  EXPECT_EQ(alone.code, telling < 10 ? 7 : 0) << alone.err;
  EXPECT_EQ(report["verdict"], telling < 10 ? "not proved" : "parity");
  line.insert(line.end(), {"--checkpoint", fixture("trained")});
  EXPECT_EQ(run_ferry(line).code, 0);
}

TEST(Verify, ATinyModelInFourBitsIsNotProved) {
  const TempDir dir;
  const std::string bundle =
      convert(dir, fixture("golden/qwen2"),
              {"--quantize", "8da4w", "--quantize-rule", "*.feed_forward.w2=8da8w"});
  const Outcome outcome = run_ferry(verify_line(bundle, "golden/qwen2"));
  EXPECT_EQ(outcome.code, 7) << outcome.err;
  EXPECT_EQ(outcome.json()["verdict"], "not proved");
  EXPECT_EQ(outcome.json()["proves"], Json::array());
  EXPECT_NE(outcome.err.find("--checkpoint"), std::string::npos) << outcome.err;
}

TEST(Verify, AToleranceReachesEveryComparison) {
  const TempDir dir;
  Line line = verify_line(convert(dir, fixture("llama3_tied")), "llama3_tied");
  line.insert(line.end(), {"--checkpoint", fixture("llama3_tied"), "--tolerance", "1e-9"});
  const Outcome outcome = run_ferry(line);
  EXPECT_EQ(outcome.code, 1);
  const Json report = outcome.json();
  EXPECT_EQ(report["f32_path"]["parity"], false);
  EXPECT_EQ(report["f32_path"]["tolerance"]["source"], "argument");
}

TEST(Verify, NaNIsNeverParityAndTheReportStaysJson) {
  const TempDir dir;
  const std::string source = changed_checkpoint(dir, "llama3_tied", [](TensorFile& file) {
    file.set_bytes("model.norm.weight", floats(1, std::nanf("")));
  });
  Line line = verify_line(convert(dir, source), "llama3_tied");
  line.insert(line.end(), {"--tolerance", "1e30"});
  const Outcome outcome = run_ferry(line);
  EXPECT_EQ(outcome.code, 1);
  const Json report = outcome.json();
  EXPECT_EQ(report["parity"], false);
  EXPECT_GT(report["metrics"]["max_abs"], 1e300);
}

TEST(Verify, ATighterToleranceThanTheNoiseFails) {
  const TempDir dir;
  Line line = verify_line(convert(dir, fixture("llama3_tied")), "llama3_tied");
  line.insert(line.end(), {"--tolerance", "1e-9"});
  const Outcome outcome = run_ferry(line);
  EXPECT_EQ(outcome.code, 1);
  EXPECT_EQ(outcome.json()["tolerance"]["logits_max_abs"], 1e-9);
  EXPECT_NE(outcome.json()["first_divergence"], nullptr);
}

// Returns the manifest with its own digest renewed.
std::string with_self_digest(std::string text) {
  const std::string member = "\"manifest_sha256\": \"";
  const size_t at = text.find(member) + member.size();
  text.replace(at, 64, std::string(64, '0'));
  return text.replace(at, 64, to_hex(sha256(std::as_bytes(std::span(text)))));
}

// The options that a bundle states about its conversion are untrusted. No file that it names is
// opened, and options that do not fit the model are an error of the bundle, not of the command
// line.
TEST(Verify, OptionsThatABundleStatesAreUntrusted) {
  const TempDir dir;
  const std::string bundle = convert(dir, fixture("llama3_tied"));
  const Line line = {"verify", bundle, "--checkpoint", fixture("llama3_tied")};
  const std::string text = read_bytes(bundle + "/manifest.json");
  const auto state = [&](std::string name, std::string value, std::string other,
                         std::string stated) {
    const auto member = [](const std::string& n, const std::string& v) {
      return "\"name\": \"" + n + "\",\n   \"value\": \"" + v + "\"";
    };
    std::string changed = text;
    const size_t at = changed.find(member(name, value));
    ASSERT_NE(at, std::string::npos);
    changed.replace(at, member(name, value).size(), member(other, stated));
    write_bytes(bundle + "/manifest.json", with_self_digest(changed));
  };
  for (const char* option : {"lora", "config", "reference"}) {
    state("shards", "1", option, dir / "absent");
    EXPECT_EQ(run_ferry(line).code, 0) << option;
  }
  state("shards", "1", "shards", "9999");
  const Outcome cut = run_ferry(line);
  EXPECT_EQ(cut.code, 3);
  EXPECT_NE(cut.err.find(bundle + ": the options that it was made with do not fit "),
            std::string::npos);
  state("quantize", "none", "quantize", "4bit");
  EXPECT_EQ(run_ferry(line).code, 3);
}

// Correct bundles pass with a margin: the noise of each tensor is far from its floor.
TEST(Verify, HalfPrecisionIsWithinItsMeasuredRounding) {
  for (const char* name :
       {"llama3_tied", "qwen3_5_text", "golden/qwen3_moe", "golden/qwen3_next_moe"}) {
    for (const char* dtype : {"f16", "bf16"}) {
      SCOPED_TRACE(std::string(name) + " " + dtype);
      const TempDir dir;
      const Outcome outcome =
          run_ferry(verify_line(convert(dir, fixture(name), {"--dtype", dtype}), name));
      EXPECT_EQ(outcome.code, 0) << outcome.err;
      const Json report = outcome.json();
      // Rounding of weights changes logits by more than this.
      EXPECT_GT(report["metrics"]["max_abs"], 1e-4);
      for (const Json& layer : report["in_f32"]["layers"]) {
        EXPECT_DOUBLE_EQ(layer["margin_db"].get<double>(),
                         layer["sqnr_db"].get<double>() - layer["floor_db"].get<double>());
        EXPECT_GT(layer["margin_db"].get<double>(), 5) << layer;
      }
      EXPECT_EQ(report["rounding"]["tolerance"]["source"], "none");
    }
  }
}

// A bf16 checkpoint is converted without a cast. With activations in f32 nothing is rounded, so the
// bound is that of f32.
TEST(Verify, KeptHalfPrecisionIsProvedAsSharplyAsF32) {
  const TempDir dir;
  const std::string bundle = convert(dir, fixture("golden/qwen3_moe_bf16"));
  const Outcome outcome = run_ferry(verify_line(bundle, "golden/qwen3_moe_bf16"));
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  const Json report = outcome.json();
  EXPECT_LT(report["in_f32"]["metrics"]["max_abs"], 1e-4);
  EXPECT_EQ(report["in_f32"]["tolerance"]["source"], "noise");
  EXPECT_GT(report["metrics"]["max_abs"], 1e-2);  // the error of bf16 activations

  const TempDir other, wrong;
  const std::string source =
      changed_config(other, "golden/qwen3_moe_bf16", {{"rms_norm_eps", 2e-5}});
  const Outcome changed = run_ferry(verify_line(convert(wrong, source), "golden/qwen3_moe_bf16"));
  EXPECT_EQ(changed.code, 1);
  EXPECT_EQ(changed.json()["in_f32"]["parity"], false);
  EXPECT_NE(changed.json()["in_f32"]["first_divergence"], nullptr);
}

// Earlier versions accepted both bundles: the bounds of half precision were wider than any error.
TEST(Verify, AWrongRopeIsFoundInHalfPrecision) {
  for (const char* dtype : {"f16", "bf16"}) {
    SCOPED_TRACE(dtype);
    const TempDir dir, other;
    const std::string source =
        changed_config(other, "qwen3_5_text", {{"rope_parameters", {{"rope_theta", 10000.0}}}});
    const Outcome outcome =
        run_ferry(verify_line(convert(dir, source, {"--dtype", dtype}), "qwen3_5_text"));
    EXPECT_EQ(outcome.code, 1);
    const Json report = outcome.json();
    EXPECT_EQ(report["in_f32"]["first_divergence"]["layer"], 3) << report["in_f32"]["layers"];
    EXPECT_NE(outcome.err.find("layer 3"), std::string::npos) << outcome.err;
  }
}

TEST(Verify, SaysWhatItProvesAndWhatNot) {
  const TempDir dir;
  const Json report =
      run_ferry(
          verify_line(convert(dir, fixture("llama3_tied"), {"--dtype", "bf16"}), "llama3_tied"))
          .json();
  EXPECT_NE(report["proves"].dump().find("bf16 rounding"), std::string::npos);
  EXPECT_NE(report["does_not_prove"].dump().find("--checkpoint"), std::string::npos);
}

// The verifier sets the bound. A bundle can only tighten it.
TEST(Verify, AManifestCannotLoosenTheBound) {
  const TempDir dir, other;
  const std::string source = changed_config(other, "llama3_tied", {{"rms_norm_eps", 1e-2}});
  const std::string bundle = convert(dir, source);
  const std::string path = bundle + "/manifest.json";
  std::string text = read_bytes(path);
  const size_t at = text.find("\"default_tolerance\": ");
  ASSERT_NE(at, std::string::npos);
  const size_t begin = at + std::string("\"default_tolerance\": ").size();
  text.replace(begin, text.find_first_of(",\n", begin) - begin, "1e+300");
  write_bytes(path, with_self_digest(text));
  const Outcome outcome = run_ferry(verify_line(bundle, "llama3_tied"));
  EXPECT_EQ(outcome.code, 1) << outcome.err;
  EXPECT_EQ(outcome.json()["tolerance"]["source"], "noise");
}

// A reference file is untrusted, as any other file.
TEST(Verify, ExpertsThatTheModelDoesNotHaveAreRefused) {
  const TempDir dir, other;
  const std::string bundle = convert(dir, fixture("golden/qwen3_moe_bf16"));
  TensorFile reference(fixture("golden/qwen3_moe_bf16/golden.safetensors"));
  const int64_t tokens = reference.header.at("a.input_ids")["shape"][1];
  const std::vector<int64_t> ids(static_cast<size_t>(tokens * 3), 8);  // ids go from 0 to 7
  const std::string bytes(reinterpret_cast<const char*>(ids.data()), ids.size() * sizeof ids[0]);
  reference.append("a.router_experts.0", "I64", {1, tokens, 3}, bytes);
  reference.write(other / "r.safetensors");
  const Outcome outcome = run_ferry({"verify", bundle, "--reference", other / "r.safetensors"});
  EXPECT_EQ(outcome.code, 3);
  EXPECT_NE(
      outcome.err.find("r.safetensors: prompt 'a': expert routes of layer 0 are not 3 distinct "
                       "experts of 8"),
      std::string::npos)
      << outcome.err;
}

TEST(Verify, TheBundleProvesItselfWithAnEmbeddedReference) {
  const TempDir dir;
  const std::string bundle = convert(dir, fixture("llama3_tied"),
                                     {"--reference", fixture("llama3_tied/golden.safetensors")});
  EXPECT_EQ(run_ferry({"verify", bundle}).code, 0);
}

TEST(Verify, WithoutAnyReferenceThereIsNothingToCompare) {
  const TempDir dir;
  const Outcome outcome = run_ferry({"verify", convert(dir, fixture("llama3_tied"))});
  EXPECT_EQ(outcome.code, 2);
  EXPECT_NE(outcome.err.find("--reference"), std::string::npos);
}

TEST(Verify, AReferenceOfAnotherModelIsBadInput) {
  const TempDir dir;
  const Outcome outcome =
      run_ferry(verify_line(convert(dir, fixture("llama3_tied")), "qwen3_5_text"));
  EXPECT_EQ(outcome.code, 3);
  EXPECT_EQ(outcome.error_lines(), 1U);
}

TEST(Verify, APromptThatDoesNotFitTheContextIsSaid) {
  const TempDir dir;
  const std::string bundle = convert(dir, fixture("llama3_tied"), {"--context-length", "20"});
  const Outcome outcome = run_ferry(verify_line(bundle, "llama3_tied"));
  EXPECT_EQ(outcome.code, 3);
  EXPECT_NE(outcome.err.find("20"), std::string::npos) << outcome.err;
}

TEST(Check, FindsOneFlippedBitAnywhere) {
  const TempDir dir;
  const std::string bundle = convert(dir, fixture("llama3_tied"));
  EXPECT_EQ(run_ferry({"check", bundle}).code, 0);
  for (const auto& [name, bytes] : files_in(bundle)) {
    for (const size_t at : {size_t{0}, bytes.size() / 2, bytes.size() - 1}) {
      SCOPED_TRACE(name + " at " + std::to_string(at));
      std::string damaged = bytes;
      damaged[at] = static_cast<char>(damaged[at] ^ 4);
      write_bytes(bundle + "/" + name, damaged);
      const Outcome check = run_ferry({"check", bundle, "--json"});
      EXPECT_EQ(check.code, 1);
      EXPECT_EQ(check.json()["ok"], false);
      EXPECT_NE(check.json()["problems"].dump().find(name), std::string::npos);
      const Outcome verify = run_ferry(verify_line(bundle, "llama3_tied"));
      EXPECT_EQ(verify.code, 3) << verify.err;
    }
    write_bytes(bundle + "/" + name, bytes);
  }
  EXPECT_EQ(run_ferry({"check", bundle}).code, 0);
}

}  // namespace
}  // namespace ferry::verb_verify_test
