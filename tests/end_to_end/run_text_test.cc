// ferry run with text: sources of prompts, ends of answers, choice of tokens.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "tests/cli/checkpoints.h"
#include "tests/cli/ferry_process.h"

namespace ferry::run_text_test {
namespace {

using Json = nlohmann::json;
using Line = std::vector<std::string>;

Line operator+(Line line, const Line& more) {
  line.insert(line.end(), more.begin(), more.end());
  return line;
}

std::string convert(const std::string& source, const std::string& bundle,
                    const Line& options = {}) {
  const Outcome outcome = run_ferry(Line{"convert", source, "-o", bundle} + options);
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  return bundle;
}

class RunText : public testing::Test {
 protected:
  RunText() : bundle_(convert(text_checkpoint(dir_), dir_ / "b")) {}

  Line line(const Line& options, int length = 40) const {
    return Line{"run", bundle_, "--max-new", std::to_string(length), "--ignore-eos"} + options;
  }
  Json answer(const Line& options, int length = 40) const {
    const Outcome outcome = run_ferry(line(options + Line{"--json"}, length));
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return outcome.json()["result"];
  }

  TempDir dir_;
  std::string bundle_;
};

TEST_F(RunText, PromptsComeFromStdinAndFiles) {
  const Json ids = answer({"--prompt", "Once\nmore"})["prompt_tokens"];
  const auto on = [&](const std::string& input, const Line& options) {
    return run_ferry_on(input, line(options + Line{"--json"})).json()["result"]["prompt_tokens"];
  };
  // The line break at the end of the input does not belong to the prompt. All other line breaks do.
  EXPECT_EQ(on("Once\nmore", {"--prompt", "-"}), ids);
  EXPECT_EQ(on("Once\nmore\n", {"--prompt", "-"}), ids);
  EXPECT_EQ(on("Once\nmore\r\n", {"--prompt", "-"}), ids);
  EXPECT_EQ(on("Once\nmore\n\n", {"--prompt", "-"}),
            answer({"--prompt", "Once\nmore\n"})["prompt_tokens"]);
  write_bytes(dir_ / "prompt.txt", "Once\nmore\n");
  EXPECT_EQ(answer({"--prompt-file", dir_ / "prompt.txt"})["prompt_tokens"], ids);
  EXPECT_EQ(on("Once\nmore\n", {"--chat", "-"}), answer({"--chat", "Once\nmore"})["prompt_tokens"]);
  // The text of a file may be a hyphen.
  write_bytes(dir_ / "prompt.txt", "-");
  EXPECT_EQ(answer({"--prompt-file", dir_ / "prompt.txt"})["prompt_tokens"].size(), 1U);
}

TEST_F(RunText, PromptsThatAreNoneAreRefused) {
  write_bytes(dir_ / "empty", "\n");
  write_bytes(dir_ / "latin1", "caf\xe9");
  const std::vector<std::pair<Line, int>> refused = {
      {{"--prompt-file", dir_ / "empty"}, 2},
      {{"--prompt-file", dir_ / "latin1"}, 2},
      {{"--prompt-file", dir_ / "absent"}, 5},
      {{"--prompt-file", dir_ / "empty", "--prompt", "x"}, 2},
      {{"--prompt", "x", "--system", "y"}, 2},
      {{"--prompt", "x", "--stop", ""}, 2},
      {{"--prompt", "x", "--stop", "\xff"}, 2},
      {{"--tokens", "1", "--stop", "x"}, 2},
      {{"--prompt", "x", "--min-p", "1.5"}, 2},
      {{"--prompt", "x", "--repetition-penalty", "0"}, 2},
  };
  for (const auto& [options, code] : refused) {
    const Outcome outcome = run_ferry(line(options));
    EXPECT_EQ(outcome.code, code) << testing::PrintToString(options) << outcome.err;
    EXPECT_EQ(outcome.error_lines(), 1U) << outcome.err;
  }
  EXPECT_EQ(run_ferry_on("", line({"--prompt", "-"})).code, 2);
  EXPECT_EQ(run_ferry_on("\xff", line({"--chat", "-"})).code, 2);
}

TEST_F(RunText, ASystemMessageComesBeforeTheOthers) {
  const Json messages = {{{"role", "system"}, {"content", "Be brief."}},
                         {{"role", "user"}, {"content", "Hello"}}};
  write_bytes(dir_ / "messages.json", messages.dump());
  const Json whole = answer({"--messages", dir_ / "messages.json"});
  EXPECT_EQ(answer({"--system", "Be brief.", "--chat", "Hello"})["tokens"], whole["tokens"]);
  const Outcome turn = run_ferry_on(
      "Hello\n", line({"--interactive", "--system", "Be brief.", "--json", "--quiet"}));
  EXPECT_EQ(turn.json()["result"]["prompt_tokens"], whole["prompt_tokens"]);
  EXPECT_EQ(turn.json()["result"]["tokens"], whole["tokens"]);
}

// The tokens of this bundle are bytes, so most stop texts are several tokens.
TEST_F(RunText, AnAnswerEndsBeforeAStopText) {
  const Json whole = answer({"--prompt", "Hello"});
  const std::string text = whole["text"];
  ASSERT_GT(text.size(), 12U);
  // Returns whether `at` is inside a UTF-8 character.
  const auto inside = [&](size_t at) { return (text[at] & '\xc0') == '\x80'; };
  size_t ended = 0;
  for (size_t begin = 1; begin + 4 < text.size(); begin += 5) {
    const std::string stop = text.substr(begin, 4);
    if (inside(begin) || inside(begin + 4)) continue;
    const Json cut = answer({"--prompt", "Hello", "--stop", "never", "--stop", stop});
    EXPECT_EQ(cut["text"], text.substr(0, text.find(stop)));
    EXPECT_EQ(cut["stop"], "stop_text");
    EXPECT_EQ(cut["stop_text"], stop);
    EXPECT_LE(cut["tokens"].size(), whole["tokens"].size());
    const Outcome streamed = run_ferry(line({"--prompt", "Hello", "--stop", stop}));
    EXPECT_EQ(streamed.out, cut["text"].get<std::string>() + "\n");
    EXPECT_NE(streamed.err.find(", end: stop_text\n"), std::string::npos) << streamed.err;
    ended += 1;
  }
  EXPECT_GT(ended, 0U);
  const Json other = answer({"--prompt", "Hello", "--stop", "no such text"});
  EXPECT_EQ(other["text"], whole["text"]);
  EXPECT_EQ(other["stop"], "max_new");
  EXPECT_FALSE(other.contains("stop_text"));
}

// tests/runner tests the formula. This test is about the tokens that it gets: those of the prompt
// and of the answer.
TEST_F(RunText, ThePenaltyCountsThePromptAndTheAnswer) {
  const std::string prompt = "1,2,3";
  const auto tokens = [&](const Line& options) {
    return answer(Line{"--tokens", prompt} + options)["tokens"].get<std::vector<int64_t>>();
  };
  const auto repeats = [](const std::vector<int64_t>& ids) {
    return ids.size() - std::set<int64_t>(ids.begin(), ids.end()).size();
  };
  const std::vector<int64_t> plain = tokens({});
  EXPECT_EQ(tokens({"--repetition-penalty", "1"}), plain);
  const std::vector<int64_t> penalised = tokens({"--repetition-penalty", "100"});
  EXPECT_GT(repeats(plain), 0U);
  EXPECT_EQ(repeats(penalised), 0U);
  for (const int64_t id : {1, 2, 3}) EXPECT_EQ(std::ranges::count(penalised, id), 0) << id;
  EXPECT_GT(repeats(tokens({"--repetition-penalty", "0.01"})), repeats(plain));
  EXPECT_EQ(tokens({"--temperature", "3", "--min-p", "1"}), plain);
}

TEST_F(RunText, StreamedTokensAreThoseOfTheDocument) {
  RunningFerry run({"run", bundle_, "--tokens", "1,2,3", "--ignore-eos", "--max-new", "400"});
  const Outcome outcome = run.wait();
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(std::ranges::count(outcome.out, ','), 399);
  EXPECT_TRUE(outcome.out.ends_with('\n'));
  EXPECT_EQ(Json::parse("[" + outcome.out + "]"), answer({"--tokens", "1,2,3"}, 400)["tokens"]);
}

// The decode rate counts the tokens after the first one, which the prompt gives.
TEST_F(RunText, RatesAreOfTheStepsThatWereTaken) {
  const Json one = answer({"--tokens", "1"}, 1)["stats"];
  EXPECT_TRUE(one["new_tokens_per_second"].is_null());
  const Json many = answer({"--tokens", "1"}, 400)["stats"];
  const double seconds = many["decode_seconds"];
  ASSERT_GT(seconds, 0);
  EXPECT_NEAR(many["new_tokens_per_second"].get<double>(), 399 / seconds, 1e-6 * 399 / seconds);
  EXPECT_GT(many["prompt_tokens_per_second"], 0);
}

TEST(RunTextStatic, LookaheadObeysEveryOption) {
  const TempDir dir;
  const std::string bundle = convert(text_checkpoint(dir), dir / "b",
                                     {"--program", "static", "--context-length", "96",
                                      "--prefill-length", "8", "--decode-length", "8"});
  for (const Line& options :
       {Line{"--repetition-penalty", "1.3"},
        Line{"--repetition-penalty", "1.1", "--temperature", "0.9", "--min-p", "0.02", "--top-k",
             "50", "--seed", "4"},
        Line{"--temperature", "1.5", "--min-p", "0.05", "--stop", "a", "--seed", "0"}}) {
    const auto tokens = [&](const std::string& mode) {
      const Outcome outcome = run_ferry(Line{"run", bundle, "--prompt", "Hello", "--ignore-eos",
                                             "--max-new", "40", "--json", "--mode", mode} +
                                        options);
      EXPECT_EQ(outcome.code, 0) << outcome.err;
      const Json json = outcome.json()["result"];
      return Json{json["tokens"], json["text"], json["stop"]};
    };
    const Json kv = tokens("kv");
    EXPECT_EQ(tokens("lookahead"), kv) << testing::PrintToString(options);
    EXPECT_EQ(tokens("hybrid"), kv) << testing::PrintToString(options);
  }
}

}  // namespace
}  // namespace ferry::run_text_test
