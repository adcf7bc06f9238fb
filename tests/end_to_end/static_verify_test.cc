// ferry verify of static bundles: caches, decode modes, comparison with other bundles, and every
// option of conversion.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <tuple>
#include <utility>

#include "core/sha256.h"
#include "core/xxh3.h"
#include "tests/cli/ferry_process.h"

namespace ferry::static_verify_test {
namespace {

using Json = nlohmann::json;
using Line = std::vector<std::string>;

Line with(Line line, const Line& more) {
  line.insert(line.end(), more.begin(), more.end());
  return line;
}

const Line kStatic = {"--program", "static", "--context-length", "96", "--prefill-length", "8"};

void convert(const std::string& name, const std::string& bundle, const Line& options) {
  const Outcome outcome = run_ferry(with({"convert", fixture(name), "-o", bundle}, options));
  ASSERT_EQ(outcome.code, 0) << outcome.err;
}

std::string reference(const std::string& name) { return fixture(name + "/golden.safetensors"); }

Json layer(const Json& report, const std::string& name) {
  for (const Json& one : report["layers"]) {
    if (one["name"] == name) return one;
  }
  return nullptr;
}

// -- caches

TEST(StaticVerify, CachesAreComparedAsTheModelHasThem) {
  for (const Line& options :
       {Line{}, Line{"--rotate", "r3"}, Line{"--shards", "2"}, Line{"--attention", "sha"}}) {
    SCOPED_TRACE(testing::PrintToString(options));
    const TempDir dir;
    convert("llama3_tied", dir / "b", with(kStatic, options));
    const Outcome outcome =
        run_ferry({"verify", dir / "b", "--reference", reference("llama3_tied"), "--json"});
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    for (const char* name : {"cache.0.key", "cache.0.value", "cache.1.key", "cache.1.value"}) {
      const Json cache = layer(outcome.json(), name);
      ASSERT_FALSE(cache.is_null()) << name;
      EXPECT_GT(cache["sqnr_db"], 100.0) << name;
      EXPECT_GT(cache["scale"], 0.0) << name;
    }
  }
}

TEST(StaticVerify, StatesAreComparedToo) {
  const TempDir dir;
  convert("qwen3_5_text", dir / "b", kStatic);
  const Outcome outcome =
      run_ferry({"verify", dir / "b", "--reference", reference("qwen3_5_text"), "--json"});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  const Json report = outcome.json();
  for (const char* name : {"cache.0.conv_state", "cache.0.recurrent_state", "cache.3.key"}) {
    const Json cache = layer(report, name);
    ASSERT_FALSE(cache.is_null()) << name;
    EXPECT_GT(cache["sqnr_db"], 80.0) << name;
  }
}

TEST(StaticVerify, CodesOfCachesAreComparedAsNumbers) {
  const TempDir dir;
  convert("llama3_tied", dir / "b", with(kStatic, {"--kv-dtype", "u8", "--rotate", "r3"}));
  const Outcome outcome =
      run_ferry({"verify", dir / "b", "--reference", reference("llama3_tied"), "--json"});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  const double sqnr = layer(outcome.json(), "cache.0.key")["sqnr_db"];
  EXPECT_GT(sqnr, 25.0);
  EXPECT_LT(sqnr, 60.0);
}

TEST(StaticVerify, MasksOfFewBitsLoseNothing) {
  for (const char* dtype : {"f16", "bf16", "u16", "u8"}) {
    const TempDir dir;
    convert("llama3_tied", dir / "b", with(kStatic, {"--mask-dtype", dtype}));
    const Outcome outcome =
        run_ferry({"verify", dir / "b", "--reference", reference("llama3_tied"), "--json"});
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_EQ(outcome.json()["tolerance"]["source"], "noise");
  }
}

// -- modes

TEST(StaticVerify, EveryModeIsHeldToTokenByToken) {
  const TempDir dir;
  convert("llama3_tied", dir / "b", with(kStatic, {"--decode-length", "8"}));
  const Line line = {"verify", dir / "b", "--reference", reference("llama3_tied")};
  const Outcome outcome = run_ferry(with(line, {"--json"}));
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const Json modes = outcome.json()["modes"];
  ASSERT_EQ(modes.size(), 2u);
  EXPECT_EQ(modes[0]["mode"], "hybrid");
  EXPECT_EQ(modes[1]["mode"], "lookahead");
  for (const Json& mode : modes) {
    EXPECT_EQ(mode["against"], "kv");
    EXPECT_EQ(mode["parity"], true);
    EXPECT_EQ(mode["metrics"]["greedy_match"], mode["metrics"]["greedy_total"]);
    EXPECT_GT(mode["metrics"]["greedy_total"], 0);
    EXPECT_LE(mode["metrics"]["max_abs"], 1e-4);
    EXPECT_FALSE(layer(mode, "cache.1.key").is_null());
  }
  EXPECT_GT(modes[1]["lookahead"]["generated"], 0);
  const std::string text = run_ferry(line).out;
  EXPECT_NE(text.find("mode hybrid against kv: parity"), std::string::npos) << text;
  EXPECT_NE(text.find("mode lookahead against kv: parity"), std::string::npos) << text;
}

// The modes sum in different orders, which makes a difference above this tolerance.
TEST(StaticVerify, AModeThatDiffersIsNamed) {
  const TempDir dir;
  convert("llama3_tied", dir / "b", kStatic);
  const Outcome outcome = run_ferry({"verify", dir / "b", "--reference", reference("llama3_tied"),
                                     "--tolerance", "1e-8", "--json"});
  EXPECT_EQ(outcome.code, 1);
  EXPECT_NE(outcome.err.find("mode hybrid is not what mode kv is: max_abs "), std::string::npos)
      << outcome.err;
  EXPECT_EQ(outcome.json()["modes"][0]["parity"], false);
}

TEST(StaticVerify, SaysWhichModesTheBundleDoesNotHave) {
  const TempDir dir;
  convert("qwen3_5_text", dir / "b", kStatic);
  const Json report =
      run_ferry({"verify", dir / "b", "--reference", reference("qwen3_5_text"), "--json"}).json();
  EXPECT_EQ(report["parity"], true);
  const std::string why = report["modes"][1]["absent"];
  EXPECT_NE(why.find("needs guesses to be undone"), std::string::npos) << why;
}

TEST(StaticVerify, OneModeCanBeAskedFor) {
  const TempDir dir;
  convert("llama3_tied", dir / "b", with(kStatic, {"--decode-length", "4"}));
  for (const std::string mode : {"kv", "hybrid", "lookahead"}) {
    const Outcome outcome = run_ferry(
        {"verify", dir / "b", "--reference", reference("llama3_tied"), "--mode", mode, "--json"});
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    const Json report = outcome.json();
    EXPECT_FALSE(report.contains("modes"));
    EXPECT_EQ(report["cases"][0].contains("lookahead"), mode == "lookahead");
    EXPECT_EQ(report["metrics"]["greedy_match"], report["metrics"]["greedy_total"]);
  }
}

TEST(StaticVerify, ModesThatAreNotThereAreRefusedByName) {
  const TempDir dir;
  convert("llama3_tied", dir / "stateful", {"--context-length", "96"});
  convert("llama3_tied", dir / "static", kStatic);
  const auto error = [&](const std::string& bundle, const Line& options) {
    const Outcome outcome =
        run_ferry(with({"verify", dir / bundle, "--reference", reference("llama3_tied")}, options));
    EXPECT_EQ(outcome.code, 2);
    return outcome.err;
  };
  EXPECT_EQ(error("stateful", {"--mode", "kv"}),
            "ferry: error: " + (dir / "stateful") +
                ": mode kv is for static programs; this bundle has stateful programs\n");
  EXPECT_EQ(error("static", {"--mode", "lookahead"}),
            "ferry: error: " + (dir / "static") +
                ": lookahead 3,2,2 needs calls of 8 tokens, (W + G) * (N - 1); those of this "
                "bundle have 1\n");
  EXPECT_EQ(error("static", {"--mode", "shift-pointer"}),
            "ferry: error: --mode shift-pointer: there is no shift-pointer mode; modes are kv, "
            "hybrid, lookahead\n");
  EXPECT_EQ(error("static", {"--calibrate", "x"}),
            "ferry: error: --calibrate belongs to --checkpoint\n");
  EXPECT_EQ(
      error("static", {"--checkpoint", fixture("llama3_tied"), "--calibrate", "x"}),
      "ferry: error: " + (dir / "static") + ": --calibrate: no cache or logits are u8 or u16\n");
  EXPECT_EQ(error("static", {"--checkpoint", "x", "--against", "y"}),
            "ferry: error: --against and --checkpoint are two proofs: give one of them\n");
}

// -- another bundle

TEST(StaticVerify, ComputesWhatTheStatefulBundleComputes) {
  const TempDir dir;
  convert("llama3_tied", dir / "stateful", {"--context-length", "96"});
  convert("llama3_tied", dir / "static", kStatic);
  convert("llama3_tied", dir / "codes", with(kStatic, {"--kv-dtype", "u16"}));
  const std::vector<Line> prompts = {{}, {"--reference", reference("llama3_tied")}};
  for (const auto& [bundle, other, codes] :
       {std::tuple{"static", "stateful", false}, std::tuple{"stateful", "static", false},
        std::tuple{"codes", "stateful", true}, std::tuple{"stateful", "codes", true}}) {
    for (const Line& given : prompts) {
      SCOPED_TRACE(std::string(bundle) + " against " + other);
      const Outcome outcome =
          run_ferry(with({"verify", dir / bundle, "--against", dir / other, "--json"}, given));
      EXPECT_EQ(outcome.code, 0) << outcome.err;
      const Json report = outcome.json();
      EXPECT_EQ(report["against"], dir / other);
      EXPECT_EQ(report["proves"][0],
                "the bundle computes what '" + (dir / other) + "' computes" +
                    (codes ? " within the error of u16 rounding" : " within the noise of f32") +
                    ", for these prompts");
      EXPECT_EQ(report["tolerance"]["precision"], codes ? "u16" : "f32");
      EXPECT_FALSE(layer(report, "cache.0.key").is_null());
      EXPECT_FALSE(layer(report, "hidden_states.1").is_null());
      EXPECT_EQ(report.contains("modes"), std::string(bundle) != "stateful");
    }
  }
}

TEST(StaticVerify, AnotherBundleThatComputesOtherThingsIsNoParity) {
  const TempDir dir, changed;
  const std::string other = changed_config(changed, "llama3_tied", {{"rms_norm_eps", 1e-3}});
  convert("llama3_tied", dir / "static", kStatic);
  const Outcome made = run_ferry({"convert", other, "-o", dir / "other"});
  ASSERT_EQ(made.code, 0) << made.err;
  const Outcome outcome = run_ferry({"verify", dir / "static", "--against", dir / "other"});
  EXPECT_EQ(outcome.code, 1);
  EXPECT_NE(outcome.err.find("ferry: no parity: "), std::string::npos) << outcome.err;
  convert("qwen3_5_text", dir / "model", {"--context-length", "96"});
  const Outcome model = run_ferry({"verify", dir / "static", "--against", dir / "model"});
  EXPECT_EQ(model.code, 3);
  EXPECT_NE(model.err.find("is another model than"), std::string::npos) << model.err;
}

// -- against the checkpoint

TEST(StaticVerify, EveryOptionIsProvedAgainstTheCheckpoint) {
  const std::vector<Line> variants = {
      {"--attention", "sha"},
      {"--softmax", "masked"},
      {"--rotate", "r3"},
      {"--attention", "sha", "--softmax", "masked", "--rotate", "r3"},
      {"--kv-dtype", "u8", "--mask-dtype", "u8", "--logits-dtype", "u8"},
      {"--kv-dtype", "u16", "--mask-dtype", "u16", "--logits-dtype", "u16", "--rotate", "r3"},
      {"--kv-dtype", "f16", "--mask-dtype", "f16", "--logits-dtype", "f16"},
      {"--kv-dtype", "bf16", "--mask-dtype", "bf16", "--logits-dtype", "bf16"},
      {"--shards", "2"},
      {"--shards", "2", "--shards-in-one-file", "--decode-length", "8"},
      {"--dtype", "bf16"},
  };
  for (const Line& variant : variants) {
    SCOPED_TRACE(testing::PrintToString(variant));
    const TempDir dir;
    convert("llama3_tied", dir / "b", with(kStatic, variant));
    // Without a reference the verification is the same for all variants but those with coded
    // caches.
    const bool codes = std::ranges::count(variant, "u8") + std::ranges::count(variant, "u16") > 0;
    std::vector<Line> ways = {{"--reference", reference("llama3_tied")}};
    if (codes || &variant == &variants.front()) ways.push_back({});
    for (const Line& given : ways) {
      const Outcome outcome = run_ferry(
          with({"verify", dir / "b", "--checkpoint", fixture("llama3_tied"), "--json"}, given));
      EXPECT_EQ(outcome.code, 0) << outcome.err;
      const Json report = outcome.json();
      EXPECT_EQ(report["programs"]["different"], Json::array());
      EXPECT_FALSE(layer(report, "cache.0.key").is_null());
      EXPECT_EQ(report["modes"].size(), 2u);
      EXPECT_EQ(report.contains("encodings"), codes);
      if (codes) {
        EXPECT_EQ(report["encodings"]["different"], Json::array());
      }
    }
  }
}

// Writes a changed file of a bundle, and updates the digests so that they fit.
void replace_file(const std::string& bundle, const std::string& name, const std::string& bytes) {
  const std::string manifest_path = bundle + "/manifest.json";
  std::string manifest = read_bytes(manifest_path);
  const auto digest = [](const std::string& of) {
    return to_hex(sha256(std::as_bytes(std::span(of))));
  };
  const auto fast_digest = [](const std::string& of) {
    FastHash hash;
    hash.update(std::as_bytes(std::span(of)));
    return to_hex(hash.finish());
  };
  const std::string old = read_bytes(bundle + "/" + name);
  const std::pair<std::string, std::string> changes[] = {{digest(old), digest(bytes)},
                                                         {fast_digest(old), fast_digest(bytes)}};
  for (const auto& [before, after] : changes) {
    const size_t at = manifest.find(before);
    ASSERT_NE(at, std::string::npos);
    manifest.replace(at, before.size(), after);
  }
  const std::string member = "\"manifest_sha256\": \"";
  const size_t own = manifest.rfind(member) + member.size();
  manifest.replace(own, 64, std::string(64, '0'));
  manifest.replace(own, 64, digest(manifest));
  write_bytes(bundle + "/" + name, bytes);
  write_bytes(manifest_path, manifest);
}

// Returns the path of a bundle's program, relative to the bundle.
std::string program_of(const std::string& bundle) {
  const Json manifest = Json::parse(read_bytes(bundle + "/manifest.json"));
  return manifest["components"][0]["programs"][0]["file"];
}

// Returns the program with the first occurrence of `value` replaced.
template <class T>
std::string with_number(std::string program, T value, T other) {
  const auto bytes = [](const T& number) {
    return std::string(reinterpret_cast<const char*>(&number), sizeof number);
  };
  const size_t at = program.find(bytes(value));
  EXPECT_NE(at, std::string::npos);
  return at == std::string::npos ? program : program.replace(at, sizeof other, bytes(other));
}

TEST(StaticVerify, AChangedByteOfAProgramIsFound) {
  const TempDir dir;
  convert("llama3_tied", dir / "b", kStatic);
  const std::string file = program_of(dir / "b");
  const std::string bytes = read_bytes((dir / "b/") + file);
  const float eps = 1e-5F;
  const std::string changed = with_number(bytes, eps, std::nextafter(eps, 1.0F));
  const Line line = {"verify", dir / "b", "--checkpoint", fixture("llama3_tied")};
  write_bytes((dir / "b/") + file, changed);
  EXPECT_EQ(run_ferry(line).code, 3);  // the digest does not fit
  write_bytes((dir / "b/") + file, bytes);
  replace_file(dir / "b", file, changed);
  const Outcome outcome = run_ferry(line);
  EXPECT_EQ(outcome.code, 1) << outcome.err;
  EXPECT_NE(outcome.err.find("makes another program"), std::string::npos) << outcome.err;
}

// The changed method is slightly wrong. Activations of 8 bits hide the error, activations in f32 do
// not.
TEST(StaticVerify, AMethodThatDiffersIsFoundBehindItsCodes) {
  const TempDir dir;
  convert("llama3_tied", dir / "b", with(kStatic, {"--quantize", "8da8w"}));
  const Line line = {"verify", dir / "b", "--reference", reference("llama3_tied"), "--json"};
  const Outcome right = run_ferry(line);
  EXPECT_EQ(right.code, 0) << right.err;
  EXPECT_EQ(right.json()["modes"][0]["in_f32"]["tolerance"]["source"], "noise");
  EXPECT_EQ(right.json()["modes"][0]["tolerance"]["source"], "measured");
  const std::string file = program_of(dir / "b");
  const std::string bytes = read_bytes((dir / "b/") + file);
  // Each method has its own scale of attention scores.
  const double scale = 1 / std::sqrt(32.0);
  replace_file(dir / "b", file, with_number(bytes, scale, 1.0001 * scale));
  const Outcome wrong = run_ferry(line);
  EXPECT_EQ(wrong.code, 1);
  EXPECT_NE(wrong.err.find("mode hybrid is not what mode kv is, both with activations in f32: "),
            std::string::npos)
      << wrong.err;
  const Json mode = wrong.json()["modes"][0];
  EXPECT_EQ(mode["parity"], false);
  EXPECT_EQ(mode["in_f32"]["parity"], false);
}

// Program and manifest agree with each other. Only a new calibration finds the difference.
TEST(StaticVerify, EncodingsThatCalibrationDoesNotGiveAreFound) {
  const TempDir dir;
  write_bytes(dir / "prompts", "1,2,3,4,5\n9 8 7\n");
  const Line codes = with(kStatic, {"--kv-dtype", "u8", "--logits-dtype", "u8"});
  convert("llama3_tied", dir / "b", with(codes, {"--calibrate", dir / "prompts"}));
  const Line line = {"verify", dir / "b", "--checkpoint", fixture("llama3_tied")};
  const Outcome wrong = run_ferry(line);
  EXPECT_EQ(wrong.code, 1);
  EXPECT_NE(wrong.err.find("encodings of keys, number 0: scale "), std::string::npos) << wrong.err;
  const Outcome right = run_ferry(with(line, {"--calibrate", dir / "prompts", "--tolerance", "9"}));
  EXPECT_EQ(right.code, 0) << right.err;
}

}  // namespace
}  // namespace ferry::static_verify_test
