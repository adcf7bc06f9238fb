#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "tests/cli/ferry_process.h"

namespace ferry::static_run_test {
namespace {

using Json = nlohmann::json;
using Line = std::vector<std::string>;

void convert(const std::string& name, const std::string& bundle, const Line& options = {}) {
  Line line = {"convert", fixture(name), "-o", bundle};
  line.insert(line.end(), options.begin(), options.end());
  const Outcome outcome = run_ferry(line);
  ASSERT_EQ(outcome.code, 0) << outcome.err;
}

const Line kStatic = {"--program", "static", "--context-length", "64", "--prefill-length", "8"};

Line with(Line line, const Line& more) {
  line.insert(line.end(), more.begin(), more.end());
  return line;
}

std::vector<int64_t> ids(const TensorFile& file, const std::string& tensor) {
  const std::string bytes = file.bytes_of(tensor);
  std::vector<int64_t> values(bytes.size() / sizeof(int64_t));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

std::string prompt_of(const std::string& name) {
  std::string prompt;
  for (int64_t id : ids(TensorFile(fixture(name + "/golden.safetensors")), "short.input_ids")) {
    prompt += (prompt.empty() ? "" : ",") + std::to_string(id);
  }
  return prompt;
}

TEST(StaticRun, EveryModeGivesTheTokensOfTheOriginalModel) {
  for (const std::string name : {"llama3_tied", "qwen3_5_text"}) {
    const bool recurrent = name == "qwen3_5_text";
    const TempDir dir;
    convert(name, dir / "b", with(kStatic, {"--decode-length", recurrent ? "1" : "8"}));
    const Json greedy(ids(TensorFile(fixture(name + "/golden.safetensors")), "short.greedy_ids"));
    for (const std::string mode : {"", "kv", "hybrid", "lookahead"}) {
      if (recurrent && mode == "lookahead") continue;
      Line line = {"run", dir / "b", "--tokens", prompt_of(name), "--max-new", "16", "--json"};
      if (!mode.empty()) line = with(line, {"--mode", mode});
      const Outcome outcome = run_ferry(line);
      ASSERT_EQ(outcome.code, 0) << outcome.err;
      const Json result = outcome.json()["result"];
      EXPECT_EQ(result["tokens"], greedy) << name << " " << mode;
      EXPECT_EQ(result["stats"].contains("lookahead_accepted"), mode == "lookahead");
    }
  }
}

TEST(StaticRun, LookaheadSaysWhatItAccepted) {
  const TempDir dir;
  convert("llama3_tied", dir / "b", with(kStatic, {"--decode-length", "8"}));
  const Line line = {"run",       dir / "b", "--tokens", "1,2,3",    "--ignore-eos",
                     "--max-new", "1000",    "--mode",   "lookahead"};
  const Outcome text = run_ferry(with(line, {"--stats"}));
  ASSERT_EQ(text.code, 0) << text.err;
  EXPECT_NE(text.err.find("Lookahead Decoding: n_generated = "), std::string::npos) << text.err;
  EXPECT_NE(text.err.find(" / n_accept = "), std::string::npos) << text.err;
  const Json guessed =
      run_ferry(with(line, {"--json", "--lookahead", "2,4,4", "--seed", "7"})).json()["result"];
  EXPECT_EQ(guessed["stop"], "context");
  // A call of 8 tokens leaves 56 positions, and the last token is not executed.
  EXPECT_EQ(guessed["tokens"].size(), 56u - 3 + 1);
  EXPECT_EQ(guessed["stats"]["lookahead_generated"].get<size_t>(), guessed["tokens"].size() - 1);
  Line plain = line;
  plain.back() = "hybrid";
  EXPECT_EQ(run_ferry(with(plain, {"--json"})).json()["result"]["tokens"], guessed["tokens"]);
}

TEST(StaticRun, TokensDoNotDependOnTheModeAtATemperature) {
  const TempDir dir;
  convert("llama3_tied", dir / "b", with(kStatic, {"--decode-length", "8"}));
  const auto tokens = [&](const char* mode) {
    return run_ferry({"run", dir / "b", "--tokens", "9,8,7", "--temperature", "0.8", "--seed", "3",
                      "--ignore-eos", "--max-new", "30", "--json", "--mode", mode})
        .json()["result"]["tokens"];
  };
  EXPECT_EQ(tokens("lookahead"), tokens("kv"));
  EXPECT_EQ(tokens("hybrid"), tokens("kv"));
}

TEST(StaticRun, TheContextIsWhatCanBeCached) {
  const TempDir dir;
  convert("llama3_tied", dir / "b", kStatic);
  std::string prompt = "1";
  for (int i = 1; i < 63; ++i) prompt += ",1";
  const Json full =
      run_ferry({"run", dir / "b", "--tokens", prompt, "--ignore-eos", "--json"}).json()["result"];
  EXPECT_EQ(full["tokens"].size(), 1u);
  EXPECT_EQ(full["stop"], "context");
  const Outcome longer = run_ferry({"run", dir / "b", "--tokens", prompt + ",1"});
  EXPECT_EQ(longer.code, 2);
  EXPECT_EQ(longer.err, "ferry: error: 64 tokens from position 0 exceed the context of 63\n");
}

struct Refusal {
  std::string bundle;
  Line options;
  std::string message;
};

TEST(StaticRun, ModesThatAreNotThereAreRefusedByName) {
  const TempDir dir;
  convert("llama3_tied", dir / "stateful");
  convert("llama3_tied", dir / "static", kStatic);
  convert("qwen3_5_text", dir / "recurrent", kStatic);
  const std::string modes = "kv, hybrid, lookahead";
  const Refusal refusals[] = {
      {"static",
       {"--mode", "shift-pointer"},
       "--mode shift-pointer: there is no shift-pointer mode; modes are " + modes},
      {"stateful",
       {"--mode", "shift-pointer"},
       "--mode shift-pointer: there is no shift-pointer mode; modes are " + modes},
      {"static", {"--mode", "fast"}, "--mode 'fast': expected one of " + modes},
      {"static", {"--lookahead", "3,2,2"}, "--lookahead is for --mode lookahead"},
      {"static", {"--mode", "kv", "--lookahead", "3,2,2"}, "--lookahead is for --mode lookahead"},
      {"static",
       {"--mode", "lookahead", "--lookahead", "3,2"},
       "--lookahead '3,2': expected N,W,G such as 3,2,2"},
      {"static",
       {"--mode", "lookahead", "--lookahead", "a"},
       "--lookahead 'a': expected N,W,G such as 3,2,2"},
      {"static",
       {"--mode", "lookahead", "--lookahead", "1,2,2"},
       dir / "static: lookahead 1,2,2: expected N,W,G with n-grams of 2 tokens or more, W and G of "
             "1 or more"},
      {"static",
       {"--mode", "lookahead"},
       dir / "static: lookahead 3,2,2 needs calls of 8 tokens, (W + G) * (N - 1); those of this "
             "bundle have 1"},
      {"stateful",
       {"--mode", "kv"},
       dir / "stateful: mode kv is for static programs; this bundle has stateful programs"},
      {"recurrent",
       {"--mode", "lookahead"},
       dir / "recurrent: mode lookahead needs guesses to be undone, which the state conv_state_0 "
             "does not allow"}};
  for (const Refusal& refusal : refusals) {
    const Outcome outcome =
        run_ferry(with({"run", dir / refusal.bundle, "--tokens", "1,2"}, refusal.options));
    EXPECT_EQ(outcome.code, 2) << refusal.message;
    EXPECT_EQ(outcome.out, "");
    EXPECT_EQ(outcome.err, "ferry: error: " + refusal.message + "\n");
  }
}

TEST(StaticRun, VerifyComparesEveryRowOfAStaticBundle) {
  for (const std::string name : {"llama3_tied", "qwen3_5_text"}) {
    const TempDir dir;
    convert(name, dir / "b",
            {"--program", "static", "--context-length", "96", "--prefill-length", "8", "--dtype",
             "f32"});
    const Outcome outcome = run_ferry(
        {"verify", dir / "b", "--reference", fixture(name + "/golden.safetensors"), "--json"});
    EXPECT_EQ(outcome.code, 0) << outcome.out << outcome.err;
  }
}

TEST(StaticRun, OptionsOfTheOtherStyleAreRefusedByName) {
  const TempDir dir;
  const Line stateful = {"convert", fixture("golden/llama"), "-o", dir / "b"};
  for (const Line& option : std::vector<Line>{{"--attention", "sha"},
                                              {"--softmax", "masked"},
                                              {"--rotate", "r3"},
                                              {"--kv-dtype", "bf16"},
                                              {"--mask-dtype", "u8"},
                                              {"--logits-dtype", "u16"},
                                              {"--calibrate", "prompts"},
                                              {"--decode-length", "2"},
                                              {"--shards-in-one-file"}}) {
    const Outcome outcome = run_ferry(with(stateful, option));
    EXPECT_EQ(outcome.code, 2) << option[0];
    EXPECT_NE(outcome.err.find(option[0]), std::string::npos) << outcome.err;
    EXPECT_NE(outcome.err.find(": only with --program static"), std::string::npos) << outcome.err;
  }
  for (const Line& option : std::vector<Line>{
           {"--logits", "last"}, {"--init-buffers", "none"}, {"--calibrate", "prompts"}}) {
    const Outcome outcome = run_ferry(with(with(stateful, kStatic), option));
    EXPECT_EQ(outcome.code, 2) << option[0];
    EXPECT_NE(outcome.err.find(option[0] + (option[0] == "--logits" ? " last:" : ":")),
              std::string::npos)
        << outcome.err;
  }
}

}  // namespace
}  // namespace ferry::static_run_test
