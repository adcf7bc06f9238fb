#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <filesystem>

#include "tests/cli/ferry_process.h"

namespace ferry::verb_run_test {
namespace {

using Json = nlohmann::json;
using Line = std::vector<std::string>;

// The prompt and the tokens that transformers generated, from the golden file.
struct Golden {
  std::string prompt;
  std::vector<int64_t> greedy;
  explicit Golden(const std::string& name) {
    const TensorFile file(fixture(name + "/golden.safetensors"));
    for (int64_t id : ids(file, "short.input_ids")) {
      prompt += (prompt.empty() ? "" : ",") + std::to_string(id);
    }
    greedy = ids(file, "short.greedy_ids");
  }
  static std::vector<int64_t> ids(const TensorFile& file, const std::string& tensor) {
    const std::string bytes = file.bytes_of(tensor);
    std::vector<int64_t> values(bytes.size() / sizeof(int64_t));
    std::memcpy(values.data(), bytes.data(), bytes.size());
    return values;
  }
};

void convert(const std::string& source, const std::string& bundle, const Line& options = {}) {
  Line line = {"convert", source, "-o", bundle};
  line.insert(line.end(), options.begin(), options.end());
  const Outcome outcome = run_ferry(line);
  ASSERT_EQ(outcome.code, 0) << outcome.err;
}

TEST(Run, GeneratesTheTokensOfTheOriginalModel) {
  for (const char* name : {"llama3_tied", "qwen3_5_text"}) {
    const TempDir dir;
    const Golden golden(name);
    convert(fixture(name), dir / "b");
    const Outcome outcome =
        run_ferry({"run", dir / "b", "--tokens", golden.prompt, "--max-new", "16", "--json"});
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    const Json result = outcome.json()["result"];
    EXPECT_EQ(result["tokens"], Json(golden.greedy));
    EXPECT_EQ(result["stats"]["evaluated_tokens"], 24);
  }
}

TEST(Run, TokensAreOnStdoutAndStatisticsOnStderr) {
  const TempDir dir;
  convert(fixture("llama3_tied"), dir / "b");
  const Line line = {"run", dir / "b", "--tokens", "1,2,3", "--max-new", "4", "--stats"};
  const Outcome outcome = run_ferry(line);
  EXPECT_EQ(outcome.out.find('\n'), outcome.out.size() - 1) << outcome.out;
  EXPECT_EQ(std::count(outcome.out.begin(), outcome.out.end(), ','), 3);
  for (const char* part :
       {"RSS after prompt prefill: ", "RSS after finishing text generation: ",
        "PyTorchObserver {\"prefill_token_per_sec\":",
        "\tPrompt Tokens: 3    Generated Tokens: 3\n", "\tGenerated 3 tokens:\t",
        "\tSampling time over 6 tokens:\t", "Sampling: greedy\n",
        "Stopped by: max_new, after 4 tokens; the first came with the prompt\n"}) {
    EXPECT_NE(outcome.err.find(part), std::string::npos) << part;
  }
  Line quiet = line;
  quiet.push_back("--quiet");
  const Outcome silent = run_ferry(quiet);
  EXPECT_EQ(silent.out, outcome.out);
  EXPECT_EQ(silent.err, "");
}

// The sample is trained, so that the loss is that of a model of English.
TEST(Run, KeysAndValuesInFewerBitsLoseLittle) {
  const TempDir dir;
  convert(fixture("trained"), dir / "b");
  const Line measure = {"verify",   dir / "b",   "--perplexity", fixture("trained/held_out.txt"),
                        "--text",   "--against", dir / "b",      "--json",
                        "--kv-bits"};
  const std::pair<const char*, const char*> most_kl[] = {
      {"8", "0.0005"}, {"8,4", "0.02"}, {"4", "0.05"}};
  double last = 0;
  for (const auto& [bits, most] : most_kl) {
    Line line = measure;
    line.insert(line.end(), {bits, "--max-kl", most});
    const Outcome outcome = run_ferry(line);
    EXPECT_EQ(outcome.code, 0) << bits << ": " << outcome.err;
    const Json result = outcome.json()["result"];
    EXPECT_EQ(result["kv_bits"], bits);
    EXPECT_GT(result["kl_mean"].get<double>(), last);
    last = result["kl_mean"].get<double>();
  }
  const Line run = {"run", dir / "b", "--prompt", "The", "--max-new", "12", "--greedy", "--json"};
  Line in8 = run;
  in8.insert(in8.end(), {"--kv-bits", "8"});
  EXPECT_EQ(run_ferry(in8).json()["result"]["tokens"], run_ferry(run).json()["result"]["tokens"]);
}

TEST(Run, RefusesBitsOfKeysAndValuesThatThereAreNot) {
  const TempDir dir;
  convert(fixture("llama3_tied"), dir / "b");
  const Line run = {"run", dir / "b", "--tokens", "1"};
  const std::pair<Line, const char*> refused[] = {
      {{"--kv-bits", "5"}, "--kv-bits '5': expected 8, 4, or two of them as in 8,4"},
      {{"--kv-bits", "4,"}, "--kv-bits '4,': expected"},
      {{"--kv-bits", "8,8,8"}, "--kv-bits '8,8,8': expected"},
      {{"--kv-bits", "8", "--save-state", dir / "s"}, "--save-state does not go with --kv-bits"},
      {{"--kv-bits", "4", "--load-state", dir / "s"}, "--load-state does not go with --kv-bits"}};
  for (const auto& [options, why] : refused) {
    Line line = run;
    line.insert(line.end(), options.begin(), options.end());
    const Outcome outcome = run_ferry(line);
    EXPECT_EQ(outcome.code, 2);
    EXPECT_NE(outcome.err.find(why), std::string::npos) << outcome.err;
  }
  const Outcome verify = run_ferry({"verify", dir / "b", "--kv-bits", "8"});
  EXPECT_EQ(verify.code, 2);
  EXPECT_NE(verify.err.find("--kv-bits belong to --perplexity"), std::string::npos) << verify.err;
}

TEST(Run, LogitsThatAreNotFiniteEndIt) {
  const TempDir dir;
  const std::string source = changed_checkpoint(dir, "llama3_tied", [](TensorFile& file) {
    file.set_bytes("model.norm.weight", std::string("\0\0\xc0\x7f", 4));
  });
  convert(source, dir / "b");
  for (const char* temperature : {"0", "1"}) {
    const Outcome outcome =
        run_ferry({"run", dir / "b", "--tokens", "1,2,3", "--temperature", temperature});
    EXPECT_EQ(outcome.code, 3);
    EXPECT_EQ(outcome.out, "");
    EXPECT_EQ(outcome.err, "ferry: error: " + (dir / "b") +
                               ": the logits are not finite: there is nothing to choose from\n");
  }
}

TEST(Run, ShardsGiveBitEqualLogits) {
  for (const char* name : {"llama3_tied", "qwen3_5_text"}) {
    const TempDir dir;
    const Golden golden(name);
    convert(fixture(name), dir / "one");
    convert(fixture(name), dir / "two", {"--shards", "2"});
    for (const char* bundle : {"one", "two"}) {
      const Outcome outcome =
          run_ferry({"run", dir / bundle, "--tokens", golden.prompt, "--max-new", "8",
                     "--dump-logits", dir / (std::string(bundle) + ".safetensors")});
      ASSERT_EQ(outcome.code, 0) << outcome.err;
    }
    const TensorFile one(dir / "one.safetensors"), two(dir / "two.safetensors");
    EXPECT_EQ(one.header["logits"]["shape"][0], 8);
    EXPECT_EQ(one.bytes_of("logits"), two.bytes_of("logits"));
    EXPECT_EQ(one.data, two.data);
  }
}

TEST(Run, LogitsDoNotDependOnThreads) {
  const TempDir dir;
  const Golden golden("qwen3_5_text");
  convert(fixture("qwen3_5_text"), dir / "b", {"--dtype", "bf16"});
  for (const char* threads : {"1", "2", "8"}) {
    ASSERT_EQ(run_ferry({"run", dir / "b", "--tokens", golden.prompt, "--max-new", "8", "--threads",
                         threads, "--dump-logits", dir / threads})
                  .code,
              0);
  }
  EXPECT_EQ(read_bytes(dir / "1"), read_bytes(dir / "2"));
  EXPECT_EQ(read_bytes(dir / "1"), read_bytes(dir / "8"));
}

TEST(Run, StopsAtAnEndTokenUnlessToldNotTo) {
  const TempDir dir;
  const Golden golden("llama3_tied");
  const std::string source = changed_checkpoint(dir, "llama3_tied", [](TensorFile&) {});
  Json generation = Json::parse(read_bytes(source + "/generation_config.json"));
  generation["eos_token_id"] = {5, golden.greedy[2]};
  write_bytes(source + "/generation_config.json", generation.dump());
  convert(source, dir / "b");
  const Line line = {"run", dir / "b", "--tokens", golden.prompt, "--max-new", "16", "--json"};
  const Json stopped = run_ferry(line).json()["result"];
  EXPECT_EQ(stopped["stop"], "eos");
  EXPECT_EQ(stopped["tokens"],
            Json(std::vector<int64_t>(golden.greedy.begin(), golden.greedy.begin() + 3)));
  Line on = line;
  on.push_back("--ignore-eos");
  const Json whole = run_ferry(on).json()["result"];
  EXPECT_EQ(whole["tokens"].size(), 16U);
  EXPECT_EQ(whole["stop"], "max_new");
}

TEST(Run, StopsWhereTheContextEnds) {
  const TempDir dir;
  convert(fixture("llama3_tied"), dir / "b", {"--context-length", "8"});
  const Outcome outcome = run_ferry(
      {"run", dir / "b", "--tokens", "1,2,3,4,5", "--max-new", "100", "--ignore-eos", "--json"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  // The context has five positions for the prompt and three for generated tokens. One more token
  // comes after them.
  EXPECT_EQ(outcome.json()["result"]["tokens"].size(), 4U);
  EXPECT_EQ(outcome.json()["result"]["stop"], "context");
}

TEST(Run, TextPromptGivesText) {
  const TempDir dir;
  // The special tokens of this tokenizer are beyond the model's vocabulary.
  Json file = Json::parse(read_bytes(fixture("tokenizer/llama3/tokenizer.json")));
  file["post_processor"] = nullptr;
  const std::string source = changed_checkpoint(dir, "llama3_tied", [](TensorFile&) {});
  write_bytes(source + "/tokenizer.json", file.dump());
  convert(source, dir / "b");
  const auto with = [&](const Line& more) {
    Line words = {"run", dir / "b", "--max-new", "12", "--ignore-eos"};
    words.insert(words.end(), more.begin(), more.end());
    return run_ferry(words);
  };
  const Json result = with({"--prompt", "He", "--json"}).json()["result"];
  const Json ids = Json::parse(run_ferry_on("\"He\"\n", {"tokenize", dir / "b"}).out);
  EXPECT_EQ(result["prompt_tokens"], ids);
  std::string list;
  for (const int64_t id : ids) list += (list.empty() ? "" : ",") + std::to_string(id);
  EXPECT_EQ(with({"--tokens", list, "--json"}).json()["result"]["tokens"], result["tokens"]);
  // The streamed text equals the text of all tokens decoded at once.
  const Outcome decoded = run_ferry_on(result["tokens"].dump() + "\n",
                                       {"tokenize", dir / "b", "--decode", "--skip-special"});
  EXPECT_EQ(Json::parse(decoded.out), result["text"]);
  EXPECT_EQ(with({"--prompt", "He", "--quiet"}).out, result["text"].get<std::string>() + "\n");
}

TEST(Run, SamplingFollowsItsSeed) {
  const TempDir dir;
  convert(fixture("llama3_tied"), dir / "b");
  const auto tokens = [&](const Line& more) {
    Line words = {"run",       dir / "b", "--tokens", "1,2,3",
                  "--max-new", "24",      "--json",   "--ignore-eos"};
    words.insert(words.end(), more.begin(), more.end());
    return run_ferry(words).json()["result"]["tokens"];
  };
  const Json greedy = tokens({});
  EXPECT_EQ(tokens({"--seed", "7"}), greedy);
  EXPECT_EQ(tokens({"--temperature", "5", "--top-k", "1"}), greedy);
  EXPECT_EQ(tokens({"--temperature", "5", "--top-p", "1e-9"}), greedy);
  const Json one = tokens({"--temperature", "2", "--seed", "1"});
  EXPECT_EQ(tokens({"--temperature", "2", "--seed", "1", "--threads", "1"}), one);
  EXPECT_NE(tokens({"--temperature", "2", "--seed", "2"}), one);
}

TEST(Run, NonsenseIsRefused) {
  const TempDir dir;
  convert(fixture("llama3_tied"), dir / "b", {"--context-length", "8"});
  const std::vector<std::pair<Line, int>> lines = {
      {{"--tokens", ""}, 2},
      {{"--tokens", "1,,2"}, 2},
      {{"--tokens", "1,x"}, 2},
      {{"--tokens", "-1"}, 2},
      {{"--tokens", "384"}, 2},
      {{"--tokens", "99999999999999999999"}, 2},
      {{"--tokens", "1,2,3,4,5,6,7,8,9"}, 2},
      {{"--tokens", "1", "--max-new", "0"}, 2},
      {{"--tokens", "1", "--max-new", "-2"}, 2},
      {{"--tokens", "1", "--greedy", "--temperature", "1"}, 2},
      {{"--tokens", "1", "--temperature", "-0.7"}, 2},
      {{"--tokens", "1", "--top-p", "0"}, 2},
      {{"--tokens", "1", "--top-k", "-1"}, 2},
      {{"--tokens", "1", "--prompt", "hello"}, 2},
      {{"--prompt", "hello"}, 2},  // the bundle has no tokenizer
  };
  for (const auto& [options, code] : lines) {
    SCOPED_TRACE(testing::PrintToString(options));
    Line line = {"run", dir / "b"};
    line.insert(line.end(), options.begin(), options.end());
    const Outcome outcome = run_ferry(line);
    EXPECT_EQ(outcome.code, code) << outcome.err;
    EXPECT_EQ(outcome.error_lines(), 1U);
    EXPECT_EQ(outcome.out, "");
  }
}

TEST(Run, OptionsThatDrawTokensAreNotedWhereNoneIsDrawn) {
  const TempDir dir;
  convert(fixture("llama3_tied"), dir / "b");
  const auto notes = [&](const Line& more) {
    Line line = {"run", dir / "b", "--tokens", "1,2,3", "--max-new", "2"};
    line.insert(line.end(), more.begin(), more.end());
    return run_ferry(line).err;
  };
  const std::string greedy = notes({"--top-k", "5", "--min-p", "0.1"});
  EXPECT_TRUE(greedy.starts_with("ferry: --top-k, --min-p: no effect at temperature 0")) << greedy;
  for (const Line& more : std::vector<Line>{{"--top-k", "5", "--temperature", "1"},
                                            {"--seed", "5"},
                                            {"--top-p", "1"},
                                            {"--repetition-penalty", "2"}}) {
    EXPECT_EQ(notes(more).find("no effect"), std::string::npos) << testing::PrintToString(more);
  }
}

TEST(Run, FilesBesideTheAnswerAreNotPutIntoTheBundle) {
  const TempDir dir;
  convert(fixture("llama3_tied"), dir / "b");
  for (const char* option : {"--stats-json", "--dump-logits"}) {
    const auto run_to = [&](const std::string& path) {
      return run_ferry({"run", dir / "b", "--tokens", "1", "--max-new", "1", option, path});
    };
    EXPECT_EQ(run_to(dir / "b/f").code, 2);
    // The path is refused before anything is generated.
    const Outcome nowhere = run_to(dir / "none/f");
    EXPECT_EQ(nowhere.code, 5);
    EXPECT_EQ(nowhere.out, "");
  }
  EXPECT_EQ(run_ferry({"check", dir / "b"}).code, 0);
}

TEST(Run, TextWithoutATokenizerSaysWhatToDo) {
  const TempDir dir;
  convert(fixture("llama3_tied"), dir / "b");
  EXPECT_EQ(run_ferry({"run", dir / "b", "--prompt", "hello"}).err,
            "ferry: error: " + (dir / "b") + ": this bundle has no tokenizer.json: use --tokens\n");
}

TEST(Run, DigestsAreCheckedUnlessSkipped) {
  const TempDir dir;
  convert(fixture("llama3_tied"), dir / "b");
  const std::string path = dir / "b/decoder-00001-of-00001.ptd";
  std::string bytes = read_bytes(path);
  bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 1);
  write_bytes(path, bytes);
  const Line line = {"run", dir / "b", "--tokens", "1,2,3", "--max-new", "2"};
  EXPECT_EQ(run_ferry(line).code, 3);
  Line trusting = line;
  trusting.push_back("--skip-digests");
  EXPECT_EQ(run_ferry(trusting).code, 0);
}

}  // namespace
}  // namespace ferry::verb_run_test
