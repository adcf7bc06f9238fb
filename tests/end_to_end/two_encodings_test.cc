// Static bundles whose prefill_forward has caches in encodings of its own.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>

#include "tests/cli/ferry_process.h"

namespace ferry::two_encodings_test {
namespace {

using Json = nlohmann::json;
using Line = std::vector<std::string>;

constexpr const char* kModel = "llama3_tied";

Line with(Line line, const Line& more) {
  line.insert(line.end(), more.begin(), more.end());
  return line;
}

const Line kStatic = {"--program", "static", "--context-length", "96", "--prefill-length", "8"};

Line codes(const std::string& dtype, const Line& more = {}) {
  return with(with(kStatic, {"--kv-dtype", dtype}), more);
}

void convert(const std::string& bundle, const Line& options) {
  const Outcome outcome = run_ferry(with({"convert", fixture(kModel), "-o", bundle}, options));
  ASSERT_EQ(outcome.code, 0) << outcome.err;
}

// Returns `count` prompts of 40 tokens.
std::string prompts(int count, int step) {
  std::string text;
  for (int prompt = 0; prompt < count; ++prompt) {
    for (int i = 0; i < 40; ++i) text += std::to_string((i * step + prompt * 31) % 90 + 1) + " ";
    text += "\n";
  }
  return text;
}

struct Calibration {
  TempDir dir;
  Calibration() {
    write_bytes(dir / "kv", prompts(4, 7));
    write_bytes(dir / "prefill", prompts(2, 11));
  }
  Line both() const { return {"--calibrate", dir / "kv", "--calibrate-prefill", dir / "prefill"}; }
  Line one() const { return {"--calibrate", dir / "kv"}; }
};

std::vector<int64_t> ids(const std::string& tensor) {
  const std::string bytes =
      TensorFile(fixture(std::string(kModel) + "/golden.safetensors")).bytes_of(tensor);
  std::vector<int64_t> values(bytes.size() / sizeof(int64_t));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

Json tokens_of(const std::string& bundle, const std::string& mode) {
  std::string prompt;
  for (const int64_t id : ids("short.input_ids")) {
    prompt += (prompt.empty() ? "" : ",") + std::to_string(id);
  }
  const Outcome outcome =
      run_ferry({"run", bundle, "--tokens", prompt, "--max-new", "16", "--json", "--mode", mode});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  return outcome.json()["result"]["tokens"];
}

const Json& method_of(const Json& manifest, const std::string& name) {
  const Json& methods = manifest["components"][0]["programs"][0]["methods"];
  return *std::ranges::find_if(methods, [&](const Json& m) { return m["name"] == name; });
}

Json encoding_of(const Json& method, const char* ports, const std::string& name) {
  for (const Json& port : method[ports]) {
    if (port["name"] == name) return port["encoding"];
  }
  return nullptr;
}

TEST(TwoEncodings, EveryModeGivesTheTokensOfTheOriginalModel) {
  const Calibration files;
  const TempDir dir;
  convert(dir / "two", codes("u16", with(files.both(), {"--decode-length", "8"})));
  convert(dir / "one", codes("u16", with(files.one(), {"--decode-length", "8"})));
  const Json greedy(ids("short.greedy_ids"));
  for (const std::string mode : {"kv", "hybrid", "lookahead"}) {
    EXPECT_EQ(tokens_of(dir / "two", mode), greedy) << mode;
    EXPECT_EQ(tokens_of(dir / "one", mode), greedy) << mode;
  }
}

TEST(TwoEncodings, AreStatedByPortsAndMetadata) {
  const Calibration files;
  const TempDir dir;
  convert(dir / "b", codes("u8", files.both()));
  const Json manifest = Json::parse(read_bytes(dir / "b/manifest.json"));
  const Json &kv = method_of(manifest, "kv_forward"),
             &prefill = method_of(manifest, "prefill_forward");
  for (const char* cache : {"k_cache_0", "v_cache_1"}) {
    const Json one = encoding_of(kv, "inputs", cache), two = encoding_of(prefill, "inputs", cache);
    EXPECT_TRUE(one.is_object() && two.is_object()) << cache;
    EXPECT_NE(one, two) << cache;
  }
  EXPECT_EQ(encoding_of(kv, "outputs", "new_k_0"), encoding_of(kv, "inputs", "k_cache_0"));
  EXPECT_EQ(encoding_of(prefill, "outputs", "new_k_0"),
            encoding_of(prefill, "inputs", "k_cache_0"));
  const std::string file = manifest["components"][0]["programs"][0]["file"];
  const std::string program = read_bytes((dir / "b/") + file);
  for (const char* name : {"get_k_scale_output_0", "get_v_zero_point_output_1",
                           "get_k_zero_point_input_0", "get_v_scale_input_1"}) {
    EXPECT_NE(program.find(name), std::string::npos) << name;
  }
}

TEST(TwoEncodings, AreVerifiedAgainstTheReferenceAndTheCheckpoint) {
  const Calibration files;
  for (const char* dtype : {"u16", "u8"}) {
    const TempDir dir;
    convert(dir / "b", codes(dtype, with(files.both(), {"--decode-length", "8"})));
    const Line line = {"verify", dir / "b", "--reference",
                       fixture(std::string(kModel) + "/golden.safetensors"), "--json"};
    const Outcome reference = run_ferry(line);
    EXPECT_EQ(reference.code, 0) << dtype << reference.err;
    const Json report = reference.json();
    ASSERT_EQ(report["modes"].size(), 2u);
    for (const Json& mode : report["modes"]) EXPECT_EQ(mode["parity"], true) << mode["mode"];
    const Outcome checkpoint = run_ferry(
        with({"verify", dir / "b", "--checkpoint", fixture(kModel), "--json"}, files.both()));
    EXPECT_EQ(checkpoint.code, 0) << dtype << checkpoint.err;
    EXPECT_TRUE(checkpoint.json()["programs"]["different"].empty());
    EXPECT_TRUE(checkpoint.json()["encodings"]["different"].empty());
  }
}

TEST(TwoEncodings, ThatCalibrationDoesNotGiveAreFound) {
  const Calibration files;
  const TempDir dir;
  convert(dir / "two", codes("u16", files.both()));
  convert(dir / "one", codes("u16", files.one()));
  const auto verify = [&](const char* bundle, const Line& options) {
    return run_ferry(with({"verify", dir / bundle, "--checkpoint", fixture(kModel)}, options));
  };
  const Outcome wrong = verify("two", files.one());
  EXPECT_EQ(wrong.code, 1);
  EXPECT_NE(wrong.err.find("encodings of keys of prefill_forward, number 0: scale "),
            std::string::npos)
      << wrong.err;
  EXPECT_NE(wrong.out.find("the prompts must be those that prefill_forward was calibrated with"),
            std::string::npos)
      << wrong.out;
  EXPECT_EQ(verify("one", files.both()).code, 1);
  EXPECT_EQ(verify("one", files.one()).code, 0);
  // Calibration with the same prompts for both methods gives one encoding.
  const Line same = {"--calibrate", files.dir / "kv", "--calibrate-prefill", files.dir / "kv"};
  EXPECT_EQ(verify("one", same).code, 0);
}

TEST(TwoEncodings, AreStatedByTheProgramAlone) {
  const Calibration files;
  const TempDir dir;
  convert(dir / "b", codes("u8", with(files.both(), {"--logits-dtype", "u16"})));
  const Json manifest = Json::parse(read_bytes(dir / "b/manifest.json"));
  const std::string file = manifest["components"][0]["programs"][0]["file"];
  for (const char* mode : {"kv", "hybrid"}) {
    const Line rest = {"--tokens", "1,2,3,4,5,6,7,8,9,10", "--max-new", "16", "--json", "--mode",
                       mode,       "--ignore-eos"};
    const Outcome loose = run_ferry(with({"run", "--text-decoder", (dir / "b/") + file}, rest));
    ASSERT_EQ(loose.code, 0) << loose.err;
    EXPECT_EQ(loose.json()["result"]["tokens"],
              run_ferry(with({"run", dir / "b"}, rest)).json()["result"]["tokens"]);
  }
}

TEST(TwoEncodings, ThatAreEqualMakeTheBundleOfOne) {
  const Calibration files;
  const TempDir dir;
  convert(dir / "one", codes("u8", files.one()));
  convert(dir / "two", codes("u8", with(files.one(), {"--calibrate-prefill", files.dir / "kv"})));
  size_t compared = 0;
  for (const auto& entry : std::filesystem::directory_iterator(dir / "one")) {
    const std::string name = entry.path().filename();
    EXPECT_EQ(read_bytes((dir / "one/") + name), read_bytes((dir / "two/") + name)) << name;
    ++compared;
  }
  EXPECT_GE(compared, 3u);
}

TEST(TwoEncodings, NeedCachesOfCodes) {
  const Calibration files;
  const TempDir dir;
  const Line prefill = {"--calibrate-prefill", files.dir / "prefill"};
  const auto error = [](const Line& line) {
    const Outcome outcome = run_ferry(line);
    EXPECT_EQ(outcome.code, 2);
    EXPECT_EQ(outcome.out, "");
    return outcome.err;
  };
  const Line to = {"convert", fixture(kModel), "-o", dir / "b"};
  EXPECT_EQ(error(with(to, prefill)),
            "ferry: error: --calibrate-prefill: only with --program static\n");
  for (const Line& options : {Line{}, Line{"--kv-dtype", "f16"}, Line{"--logits-dtype", "u8"}}) {
    EXPECT_EQ(error(with(with(to, with(kStatic, options)), prefill)),
              "ferry: error: --calibrate-prefill: --kv-dtype is not u8 or u16\n");
  }
  convert(dir / "b", kStatic);
  EXPECT_EQ(error(with({"verify", dir / "b"}, prefill)),
            "ferry: error: --calibrate-prefill belongs to --checkpoint\n");
  EXPECT_EQ(error(with({"verify", dir / "b", "--checkpoint", fixture(kModel)}, prefill)),
            "ferry: error: " + (dir / "b") + ": --calibrate-prefill: no cache is u8 or u16\n");
}

TEST(TwoEncodings, AreInThePlanOfADryRun) {
  const Calibration files;
  const auto program_bytes = [&](const Line& options) {
    const Outcome outcome =
        run_ferry(with({"convert", fixture(kModel), "--json", "--dry-run"}, codes("u8", options)));
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return outcome.json()["files"][0]["bytes"].get<int64_t>();
  };
  EXPECT_GT(program_bytes(files.both()), program_bytes(files.one()));
}

}  // namespace
}  // namespace ferry::two_encodings_test
