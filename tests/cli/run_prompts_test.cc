#include "cli/run_prompts.h"

#include <gtest/gtest.h>

#include "tests/cli/checkpoints.h"

namespace ferry::cli::run_prompts_test {
namespace {

using Json = nlohmann::json;
using Line = std::vector<std::string>;

Line operator+(Line line, const Line& more) {
  line.insert(line.end(), more.begin(), more.end());
  return line;
}

TEST(ParsePrompts, ALineIsTextOrJson) {
  const auto lines = parse_prompts(
      "Hello there\r\n\n \t\n  a b \n\"two\\nlines\"\n{\"prompt\": \"p\"}\n{\"chat\": \"c\"}\n"
      "{\"messages\": [{\"role\": \"user\", \"content\": \"m\"}]}\n {\"tokens\": [1, 2]}",
      "f");
  ASSERT_TRUE(lines);
  ASSERT_EQ(lines->size(), 7U);
  const std::vector<std::pair<size_t, std::string>> want = {
      {1, "Hello there"},
      {4, "  a b "},
      {5, "two\nlines"},
      {6, "p"},
      {7, "c"},
      {8, R"([{"content":"m","role":"user"}])"},
      {9, ""}};
  for (size_t i = 0; i < want.size(); ++i) {
    EXPECT_EQ((*lines)[i].line, want[i].first);
    EXPECT_EQ((*lines)[i].text, want[i].second);
    EXPECT_EQ((*lines)[i].is_chat(), i == 4 || i == 5);
  }
  EXPECT_EQ(lines->back().tokens, (std::vector<int64_t>{1, 2}));
}

TEST(ParsePrompts, OtherLinesAreNamed) {
  const std::pair<std::string, std::string> cases[] = {
      {"", "f: no prompts"},
      {"\n \n", "f: no prompts"},
      {"ok\n\xff", "f: line 2: not UTF-8"},
      {"\"\"", "f: line 1: the prompt is empty"},
      {"{\"prompt\": 3}", "f: line 1: the prompt is no text"},
      {"{\"text\": \"a\"}",
       "f: line 1: unknown member 'text': expected one of prompt, chat, messages and tokens"},
      {"{}", "f: line 1: has 0 members: expected one of prompt, chat, messages and tokens"},
      {"{\"tokens\": [1, -2]}", "f: line 1: 'tokens' is no list of token ids"},
      {"{\"tokens\": []}", "f: line 1: 'tokens' is no list of token ids"},
      {"{\"messages\": {}}", "f: line 1: 'messages' is no list"},
  };
  for (const auto& [text, message] : cases) {
    const auto lines = parse_prompts(text, "f");
    ASSERT_FALSE(lines) << text;
    EXPECT_EQ(lines.error().message, message);
  }
  const auto broken = parse_prompts("\"Hello,\" she said", "f");
  ASSERT_FALSE(broken);
  EXPECT_TRUE(broken.error().message.starts_with("f: line 1: ")) << broken.error().message;
  EXPECT_TRUE(broken.error().message.ends_with(
      "; a text that begins like JSON is written as a JSON string"));
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
  write_bytes(dir_ / "p", "Hello\n{\"chat\": \"Why?\"}\n\n{\"tokens\": [9, 8, 7]}\nHello\n");
  const Line more = {"--max-new",     "9",   "--ignore-eos", "--seed", "5",
                     "--temperature", "0.8", "--json"};
  const Outcome outcome = run(Line{"--prompts", dir_ / "p"} + more);
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const Json result = outcome.json()["result"];
  EXPECT_EQ(result["path"], dir_ / "b");
  const std::vector<Line> single = {
      {"--prompt", "Hello"}, {"--chat", "Why?"}, {"--tokens", "9,8,7"}, {"--prompt", "Hello"}};
  const std::vector<size_t> numbers = {1, 2, 4, 5};
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
  };
  for (const auto& [options, code] : refused) {
    const Outcome one = run(options);
    EXPECT_EQ(one.code, code) << one.err;
    EXPECT_EQ(one.error_lines(), 1U) << one.err;
    EXPECT_EQ(one.out, "");
  }
}

}  // namespace
}  // namespace ferry::cli::run_prompts_test
