// ferry run --prompts: many prompts in one process.
#include <gtest/gtest.h>

#include "tests/cli/checkpoints.h"

namespace ferry::run_prompts_test {
namespace {

using Json = nlohmann::json;
using Line = std::vector<std::string>;

Line operator+(Line line, const Line& more) {
  line.insert(line.end(), more.begin(), more.end());
  return line;
}

// A line is checked before the bundle is opened.
TEST(RunPromptsLines, WhatIsNoPromptIsNamed) {
  const TempDir dir;
  const std::pair<std::string, std::string> cases[] = {
      {"", "no prompts"},
      {"\n \n", "no prompts"},
      {"ok\n\xff", "line 2: not UTF-8"},
      {"\"\"", "line 1: the prompt is empty"},
      {"{\"prompt\": 3}", "line 1: the prompt is no text"},
      {"{\"text\": \"a\"}",
       "line 1: unknown member 'text': expected one of prompt, chat, messages and tokens"},
      {"{}", "line 1: has 0 members: expected one of prompt, chat, messages and tokens"},
      {"{\"tokens\": [1, -2]}", "line 1: 'tokens' is no list of token ids"},
      {"{\"tokens\": []}", "line 1: 'tokens' is no list of token ids"},
      {"{\"messages\": {}}", "line 1: 'messages' is no list"},
  };
  const Line line = {"run", dir / "none", "--prompts", dir / "p"};
  for (const auto& [text, message] : cases) {
    write_bytes(dir / "p", text);
    const Outcome outcome = run_ferry(line);
    EXPECT_EQ(outcome.code, 3);
    EXPECT_EQ(outcome.err, "ferry: error: " + (dir / "p") + ": " + message + "\n");
  }
  write_bytes(dir / "p", "\"Hello,\" she said");
  const Outcome broken = run_ferry(line);
  EXPECT_TRUE(broken.err.starts_with("ferry: error: " + (dir / "p") + ": line 1: ")) << broken.err;
  EXPECT_TRUE(broken.err.ends_with("; a text that begins like JSON is written as a JSON string\n"))
      << broken.err;
}

class RunPrompts : public testing::TestWithParam<Line> {
 protected:
  void SetUp() override {
    const Outcome outcome = run_ferry(
        Line{"convert", text_checkpoint(dir_), "-o", dir_ / "b", "--dtype", "f32"} + GetParam());
    ASSERT_EQ(outcome.code, 0) << outcome.err;
  }
  Outcome run(const Line& options) { return run_ferry(Line{"run", dir_ / "b"} + options); }
  TempDir dir_;
};

// Every answer is the one that the prompt gets alone, also when tokens are drawn.
TEST_P(RunPrompts, AnswersAreThoseOfSinglePrompts) {
  write_bytes(dir_ / "messages", R"([{"role": "user", "content": "m"}])");
  write_bytes(dir_ / "p",
              "Hello\r\n{\"chat\": \"Why?\"}\n \t\n{\"tokens\": [9, 8, 7]}\nHello\n"
              "  \"a\\nb\"\n{\"prompt\": \"p\"}\n" +
                  ("{\"messages\": " + read_bytes(dir_ / "messages")) + "}");
  const Line more = {"--max-new",     "9",   "--ignore-eos", "--seed", "5",
                     "--temperature", "0.8", "--json"};
  const Outcome outcome = run(Line{"--prompts", dir_ / "p"} + more);
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const Json result = outcome.json()["result"];
  EXPECT_EQ(result["path"], dir_ / "b");
  const std::vector<Line> single = {{"--prompt", "Hello"},
                                    {"--chat", "Why?"},
                                    {"--tokens", "9,8,7"},
                                    {"--prompt", "Hello"},
                                    {"--prompt", "a\nb"},
                                    {"--prompt", "p"},
                                    {"--messages", dir_ / "messages"}};
  const std::vector<size_t> numbers = {1, 2, 4, 5, 6, 7, 8};
  ASSERT_EQ(result["answers"].size(), single.size());
  for (size_t i = 0; i < single.size(); ++i) {
    const Json alone = run(single[i] + more).json()["result"];
    const Json& answer = result["answers"][i];
    EXPECT_EQ(answer["line"], numbers[i]);
    for (const char* member : {"prompt_tokens", "tokens", "stop", "sampling"}) {
      EXPECT_EQ(answer[member], alone[member]) << i << member;
    }
    EXPECT_EQ(answer.value("text", ""), alone.value("text", "")) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Styles, RunPrompts, testing::Values(Line{}, Line{"--program", "static"}));

class RunPromptsText : public RunPrompts {};
INSTANTIATE_TEST_SUITE_P(Stateful, RunPromptsText, testing::Values(Line{}));

TEST_P(RunPromptsText, AnswersAreApart) {
  const Line more = {"--max-new", "4", "--ignore-eos"};
  const std::string one = run(Line{"--prompt", "Hello", "--quiet"} + more).out;
  const std::string two = run(Line{"--prompt", "Why?", "--quiet"} + more).out;
  const Outcome outcome =
      run_ferry_on("Hello\nWhy?\n", Line{"run", dir_ / "b", "--prompts", "-", "--quiet"} + more);
  EXPECT_EQ(outcome.out, one + "\n" + two);
  EXPECT_EQ(outcome.err, "");
  const Outcome told =
      run_ferry_on("Hello\nWhy?\n", Line{"run", dir_ / "b", "--prompts", "-"} + more);
  EXPECT_EQ(told.out, outcome.out);
  EXPECT_TRUE(told.err.starts_with("ferry: standard input: line 1 (1 of 2)\n")) << told.err;
  EXPECT_NE(told.err.find("ferry: standard input: line 2 (2 of 2)\n"), std::string::npos);
}

// More prompts than sequences, and answers of several lengths.
TEST_P(RunPromptsText, ParallelAnswersAreTheSame) {
  write_bytes(
      dir_ / "p",
      "Hello\n{\"chat\": \"Why?\"}\n{\"tokens\": [9, 8, 7]}\nHello\na\nThe end of it\nx y z\n");
  const std::vector<Line> ways = {{"--max-new", "9", "--ignore-eos"},
                                  {"--max-new", "40", "--stop", "e", "--ignore-eos"},
                                  {"--seed", "5", "--temperature", "1.5", "--max-new", "30"}};
  for (const Line& way : ways) {
    const Line line = Line{"--prompts", dir_ / "p", "--quiet"} + way;
    const std::string expected = run(line).out;
    for (const char* count : {"1", "2", "3", "64"}) {
      const Outcome outcome = run(line + Line{"--parallel", count});
      EXPECT_EQ(outcome.out, expected) << count;
      EXPECT_EQ(outcome.err, "");
    }
    const Json one = run(line + Line{"--json"}).json()["result"]["answers"];
    const Json many = run(line + Line{"--json", "--parallel", "3"}).json()["result"]["answers"];
    ASSERT_EQ(many.size(), one.size());
    for (size_t i = 0; i < one.size(); ++i) {
      for (const char* member : {"line", "prompt_tokens", "tokens", "stop", "sampling"}) {
        EXPECT_EQ(many[i][member], one[i][member]) << i << member;
      }
    }
  }
  const Outcome told =
      run({"--prompts", dir_ / "p", "--parallel", "3", "--max-new", "4", "--ignore-eos"});
  EXPECT_NE(told.err.find("ferry: 7 answers, 28 new tokens in "), std::string::npos) << told.err;
}

// All prompts are read before the first one is answered.
TEST_P(RunPromptsText, AWrongLineEndsTheRunBeforeItsFirstAnswer) {
  const std::string p = dir_ / "p";
  const std::string text = "{\"tokens\": [1]}\n{\"tokens\": [99999]}\n";
  write_bytes(p, text);
  const Outcome outcome = run({"--prompts", p});
  EXPECT_EQ(outcome.code, 2);
  EXPECT_EQ(outcome.out, "");
  EXPECT_EQ(outcome.err.find("ferry: error: " + p + ": line 2: token 99999 is outside"), 0U)
      << outcome.err;
  const std::vector<std::pair<Line, int>> refused = {
      {{"--prompts", dir_ / "none"}, 5},
      {{"--prompts", p, "--prompt", "x"}, 2},
      {{"--prompts", p, "--stats-json", dir_ / "s"}, 2},
      {{"--prompts", p, "--image", p}, 2},
      {{"--prompts", p, "--system", "x"}, 2},
      {{"--prompts", p, "--stop", "x"}, 2},
      {{"--prompts", p, "--parallel", "0"}, 2},
      {{"--prompts", p, "--parallel", "65"}, 2},
      {{"--prompts", p, "--parallel", "2", "--lookup", "4"}, 2},
      {{"--prompts", p, "--parallel", "2", "--mode", "kv"}, 2},
      {{"--prompts", p, "--parallel", "2", "--draft", dir_ / "b"}, 2},
      {{"--prompts", p, "--lookup", "2", "--draft", dir_ / "b"}, 2},
      {{"--prompt", "x", "--parallel", "2"}, 2},
  };
  for (const auto& [options, code] : refused) {
    const Outcome one = run(options);
    EXPECT_EQ(one.code, code) << one.err;
    EXPECT_EQ(one.error_lines(), 1U) << one.err;
    EXPECT_EQ(one.out, "");
  }
}

}  // namespace
}  // namespace ferry::run_prompts_test
