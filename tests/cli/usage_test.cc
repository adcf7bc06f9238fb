#include <gtest/gtest.h>

#include "tests/cli/ferry_process.h"

namespace ferry {
namespace {

// One line on stderr, nothing on stdout.
void expect_refusal(const Outcome& outcome, int code) {
  EXPECT_EQ(outcome.code, code) << outcome.err;
  EXPECT_EQ(outcome.error_lines(), 1U) << outcome.err;
  EXPECT_TRUE(outcome.err.starts_with("ferry: error: ")) << outcome.err;
  EXPECT_EQ(outcome.out, "");
}

TEST(Usage, NonsenseIsRefusedInOneLine) {
  const std::string source = fixture("llama3_tied");
  const std::vector<std::vector<std::string>> lines = {
      {},
      {"frobnicate"},
      {"inspect"},
      {"inspect", source, "--frobnicate"},
      {"inspect", source, "--threads", "0"},
      {"inspect", source, "--threads", "many"},
      {"convert", source},
      {"convert", source, "-o", "never", "--dtype", "f13"},
      {"convert", source, "-o", "never", "--shards", "0"},
      {"convert", source, "-o", "never", "--shards", "3"},
      {"convert", source, "-o", "never", "--max-file-size", "5X"},
      {"convert", source, "-o", "never", "--max-file-size", "-5M"},
      {"convert", source, "-o", "never", "--max-file-size", "1K"},
      {"convert", source, "-o", "never", "--context-length", "0"},
      {"convert", source, "-o", "never", "--context-length", "100000000"},
      {"convert", source, "-o", "never", "--context-length", "8", "--prefill-length", "9"},
  };
  for (const auto& line : lines) {
    SCOPED_TRACE(testing::PrintToString(line));
    expect_refusal(run_ferry(line), 2);
  }
}

TEST(Usage, WhatIsNotBuiltIsRefusedAndItsDefaultAccepted) {
  const std::string source = fixture("llama3_tied");
  const std::vector<std::pair<std::string, std::string>> options = {
      {"--to", "gguf"},       {"--quantize", "int8"},  {"--program", "static"},
      {"--kv-dtype", "f16"},  {"--mask-dtype", "f16"}, {"--logits-dtype", "f16"},
      {"--attention", "sha"}, {"--sign", "key.pem"},
  };
  for (const auto& [name, value] : options) {
    SCOPED_TRACE(name);
    expect_refusal(run_ferry({"convert", source, "--dry-run", name, value}), 4);
  }
  expect_refusal(run_ferry({"convert", source, "--dry-run", "--resume"}), 4);
  EXPECT_EQ(run_ferry({"convert", source, "--dry-run", "--to", "bundle", "--quantize", "none",
                       "--program", "stateful", "--attention", "mha"})
                .code,
            0);
}

TEST(Usage, HelpAndVersionAreAnswers) {
  const Outcome version = run_ferry({"--version"});
  EXPECT_EQ(version.code, 0);
  EXPECT_TRUE(version.out.starts_with("ferry ")) << version.out;
  const Outcome help = run_ferry({"--help"});
  EXPECT_EQ(help.code, 0);
  for (const char* verb : {"inspect", "convert", "run", "execute", "verify", "check"}) {
    EXPECT_NE(help.out.find(verb), std::string::npos) << verb;
  }
  EXPECT_NE(run_ferry({"convert", "--help"}).out.find("--prefill-length"), std::string::npos);
}

TEST(Usage, GlobalOptionsMayStandOnEitherSideOfTheVerb) {
  const std::string source = fixture("llama3_tied");
  EXPECT_EQ(run_ferry({"--json", "inspect", source}).out,
            run_ferry({"inspect", source, "--json"}).out);
}

TEST(Usage, AFullDiskUnderStdoutIsAnError) {
  const Outcome outcome = run_ferry_to("/dev/full", {"inspect", fixture("llama3_tied")});
  EXPECT_EQ(outcome.code, 5);
  EXPECT_EQ(outcome.error_lines(), 1U);
}

TEST(Usage, AnAbsentPathIsAnInputOutputErrorThatNamesIt) {
  for (const char* verb : {"inspect", "check", "verify"}) {
    const Outcome outcome = run_ferry({verb, "/nonexistent/model.safetensors"});
    EXPECT_EQ(outcome.code, 5) << outcome.err;
    EXPECT_NE(outcome.err.find("/nonexistent/model.safetensors"), std::string::npos);
  }
}

}  // namespace
}  // namespace ferry
