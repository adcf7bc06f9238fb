// Tests that ferry run obeys generation_config.json.
#include <gtest/gtest.h>

#include "tests/cli/checkpoints.h"

namespace ferry::run_defaults_test {
namespace {

using Json = nlohmann::json;
using Line = std::vector<std::string>;

Line operator+(Line line, const Line& more) {
  line.insert(line.end(), more.begin(), more.end());
  return line;
}

class RunDefaultsOf : public testing::Test {
 protected:
  // Makes a bundle of a checkpoint whose generation_config.json has these members.
  void convert(const Json& members, const Line& options = {}) {
    const TempDir made;
    const std::string source = text_checkpoint(made);
    Json file = Json::parse(read_bytes(source + "/generation_config.json"));
    file.update(members);
    write_bytes(source + "/generation_config.json", file.dump());
    const Outcome outcome = run_ferry(
        Line{"convert", source, "-o", dir_ / "b", "--dtype", "f32", "--overwrite"} + options);
    ASSERT_EQ(outcome.code, 0) << outcome.err;
  }
  Outcome run(const Line& options) {
    return run_ferry(Line{"run", dir_ / "b", "--prompt", "Hello", "--ignore-eos"} + options);
  }
  Json result(const Line& options = {}) {
    const Outcome outcome = run(Line{"--max-new", "24", "--json"} + options);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return outcome.json()["result"];
  }
  TempDir dir_;
};

TEST_F(RunDefaultsOf, TheFileDecidesHowTokensAreChosen) {
  convert({{"do_sample", true}, {"temperature", 1.5}, {"top_p", 0.95}, {"top_k", 90}});
  const Json first = result();
  const Json sampling = first["sampling"];
  EXPECT_EQ(sampling["temperature"], 1.5);
  EXPECT_EQ(sampling["top_k"], 90);
  EXPECT_EQ(sampling["top_p"], 0.95);
  // The seed that was drawn gives the same tokens again.
  const std::string seed = sampling["seed"].dump();
  EXPECT_EQ(result({"--seed", seed})["tokens"], first["tokens"]);
  const Json other = result({"--greedy"});
  EXPECT_NE(other["tokens"], first["tokens"]);
  EXPECT_NE(
      run({"--stats"}).err.find("Sampling: temperature 1.5, top k 90, top p 0.95, min p 0, seed "),
      std::string::npos);
}

TEST_F(RunDefaultsOf, OptionsAreStronger) {
  convert({{"do_sample", true}, {"temperature", 1.5}, {"repetition_penalty", 1.3}});
  const Json changed = result({"--temperature", "2", "--top-k", "3"})["sampling"];
  EXPECT_EQ(changed["temperature"], 2);
  EXPECT_EQ(changed["top_k"], 3);
  EXPECT_EQ(changed["repetition_penalty"], 1.3);
  const Json greedy = result({"--greedy"});
  EXPECT_EQ(greedy["sampling"], (Json{{"temperature", 0}, {"repetition_penalty", 1}}));
  const Json likeliest = result({"--temperature", "0"});
  EXPECT_EQ(likeliest["sampling"], (Json{{"temperature", 0}, {"repetition_penalty", 1.3}}));
  // Answers that thresholds gate or logits record are greedy.
  write_bytes(dir_ / "t.json", R"({"cpu_max_load_ms": 1000000})");
  EXPECT_EQ(result({"--thresholds", dir_ / "t.json"})["tokens"], greedy["tokens"]);
  const Outcome dumped = run({"--max-new", "24", "--quiet", "--dump-logits", dir_ / "l"});
  EXPECT_EQ(dumped.out, greedy["text"].get<std::string>() + "\n");
}

TEST_F(RunDefaultsOf, AFileWithoutDoSampleIsGreedy) {
  convert({{"temperature", 1.5}, {"top_p", 0.95}});
  const Json got = result();
  EXPECT_EQ(got["sampling"]["temperature"], 0);
  EXPECT_EQ(got["tokens"], result({"--greedy"})["tokens"]);
}

TEST_F(RunDefaultsOf, WhatIsNotSupportedIsRefusedUnlessGreedy) {
  convert({{"no_repeat_ngram_size", 2}});
  const Outcome refused = run({});
  EXPECT_EQ(refused.code, 4);
  EXPECT_EQ(refused.err, "ferry: error: " + (dir_ / "b") +
                             "/generation_config.json: 'no_repeat_ngram_size' is 2, which is not "
                             "supported; --greedy takes the likeliest token instead\n");
  EXPECT_EQ(run({"--greedy", "--max-new", "2"}).code, 0);
}

TEST_F(RunDefaultsOf, LengthsOfTheFileAndOfTheKindOfPrompt) {
  convert({{"max_new_tokens", 7}}, {"--context-length", "512"});
  const auto count = [&](const Line& options) {
    const Json got = run(options + Line{"--json"}).json()["result"];
    return std::pair(got["tokens"].size(), got["stop"].get<std::string>());
  };
  EXPECT_EQ(count({}), std::pair(size_t{7}, std::string("max_new")));
  EXPECT_EQ(count({"--max-new", "9"}), std::pair(size_t{9}, std::string("max_new")));
  EXPECT_EQ(count({"--max-new", "-1"}).second, "context");
  convert({{"max_length", 20}}, {"--context-length", "512"});
  const size_t prompt = result()["prompt_tokens"].size();
  EXPECT_EQ(count({}), std::pair(20 - prompt, std::string("max_new")));
  convert({{"max_length", prompt}}, {"--context-length", "512"});
  EXPECT_EQ(count({}).first, 256U) << "the prompt is as long as the file allows";
  convert(Json::object(), {"--context-length", "512"});
  EXPECT_EQ(count({}), std::pair(size_t{256}, std::string("max_new")));
  // A chat ends at an end token or with the context.
  const Json chat = run_ferry({"run", dir_ / "b", "--chat", "Hello", "--json"}).json()["result"];
  EXPECT_TRUE(chat["stop"] == "context" || chat["stop"] == "eos") << chat["stop"];
}

}  // namespace
}  // namespace ferry::run_defaults_test
