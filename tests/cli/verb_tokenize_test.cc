#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tests/cli/ferry_process.h"

namespace ferry::verb_tokenize_test {
namespace {

using Line = std::vector<std::string>;

TEST(Tokenize, AnswersEachLine) {
  const std::string path = fixture("tokenizer/llama3");
  const std::string text = "\"Hello world\"\n\n\"\\u2028a\"\n";
  const Outcome plain = run_ferry_on(text, {"tokenize", path});
  ASSERT_EQ(plain.code, 0) << plain.err;
  EXPECT_EQ(std::count(plain.out.begin(), plain.out.end(), '\n'), 2);

  const Outcome special = run_ferry_on(text, {"tokenize", path, "--add-special"});
  EXPECT_EQ(special.out.substr(0, 5), "[641,");  // <|begin_of_text|>

  const Outcome back = run_ferry_on(plain.out, {"tokenize", path, "--decode"});
  EXPECT_EQ(back.out, "\"Hello world\"\n\"\\u2028a\"\n");
  EXPECT_EQ(run_ferry_on(special.out, {"tokenize", path, "--decode", "--skip-special"}).out,
            back.out);
  EXPECT_EQ(run_ferry_on(text, {"tokenize", path + "/tokenizer.json"}).out, plain.out);
}

// A program that waits for each answer gets one per question.
TEST(Tokenize, APipeGetsEveryAnswerAtOnce) {
  RunningFerry ferry({"tokenize", fixture("tokenizer/llama3")}, /*close_input=*/false);
  std::string answers;
  for (int i = 0; i < 2; ++i) {
    ferry.write("\"Hello world\"\n");
    const std::string answer = ferry.read_line(/*seconds=*/20);
    ASSERT_TRUE(answer.ends_with("]\n")) << "no answer";
    answers += answer;
  }
  EXPECT_EQ(
      run_ferry_on("\"Hello world\"\n\"Hello world\"\n", {"tokenize", fixture("tokenizer/llama3")})
          .out,
      answers);
  // No work is lost by ending here, so the first signal ends the process.
  ferry.signal(SIGINT);
  EXPECT_EQ(ferry.wait().code, -1);
}

TEST(Tokenize, LineBreaksAreWrittenShort) {
  const Outcome outcome = run_ferry_on("\"a\\n\\tb\"\n", {"tokenize", fixture("tokenizer/llama3")});
  EXPECT_EQ(run_ferry_on(outcome.out, {"tokenize", fixture("tokenizer/llama3"), "--decode"}).out,
            "\"a\\n\\tb\"\n");
}

TEST(Tokenize, NonsenseIsRefused) {
  const std::string path = fixture("tokenizer/llama3");
  struct Case {
    const char* input;
    Line options;
    int code;
  };
  const Case cases[] = {
      {"hello\n", {}, 3},          {"[1]\n", {}, 3},
      {"\"\\ud800\"\n", {}, 3},    {"\"a\"\n", {"--decode"}, 3},
      {"[-1]\n", {"--decode"}, 3}, {"[1.5]\n", {"--decode"}, 3},
      {"", {"--skip-special"}, 2}, {"", {"--decode", "--add-special"}, 2},
      {"", {"--chat"}, 3},
  };
  for (const auto& [input, options, code] : cases) {
    Line line = {"tokenize", path};
    line.insert(line.end(), options.begin(), options.end());
    const Outcome outcome = run_ferry_on(input, line);
    EXPECT_EQ(outcome.code, code) << input << outcome.err;
    EXPECT_EQ(outcome.error_lines(), 1U) << outcome.err;
    EXPECT_EQ(outcome.out, "");
  }
  EXPECT_EQ(run_ferry_on("", {"tokenize", fixture("tokenizer")}).code, 5);  // no tokenizer
}

}  // namespace
}  // namespace ferry::verb_tokenize_test
