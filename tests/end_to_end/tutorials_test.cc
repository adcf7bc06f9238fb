// The commands of docs/tutorials, which are run as they stand, and what the documents say that they
// print.
#include <gtest/gtest.h>

#include <filesystem>
#include <sstream>
#include <string>
#include <vector>

#include "tests/cli/ferry_process.h"

namespace ferry::tutorials_test {
namespace {

namespace fs = std::filesystem;

// Commands for a shell, and the lines that their output must have.
struct Step {
  std::string commands;
  std::vector<std::string> expected = {};
};

std::vector<Step> steps_of(const std::string& document) {
  std::vector<Step> steps;
  std::istringstream text(read_bytes(document));
  std::string block;
  for (std::string line; std::getline(text, line);) {
    if (line.starts_with("```")) {
      block = block.empty() ? line.substr(3) : "";
      if (block == "sh") steps.emplace_back();
      EXPECT_TRUE(block.empty() || block == "sh" || block == "text") << document << ": " << line;
    } else if (block == "sh") {
      steps.back().commands += line + "\n";
    } else if (block == "text") {
      steps.back().expected.push_back(line);
    }
  }
  return steps;
}

// Whether `line` is `pattern`, in which each … stands for any characters. Runs of spaces are equal
// to one space, because the widths of columns depend on the other rows.
bool matches(std::string pattern, std::string line) {
  constexpr std::string_view kAny = "…";
  for (std::string* text : {&pattern, &line}) {
    std::string words, word;
    for (std::istringstream in(*text); in >> word;) words += (words.empty() ? "" : " ") + word;
    *text = words;
  }
  size_t at = 0;
  for (size_t begin = 0; begin <= pattern.size();) {
    const size_t end = std::min(pattern.find(kAny, begin), pattern.size());
    const std::string part = pattern.substr(begin, end - begin);
    const size_t found = line.find(part, at);
    if (found == std::string::npos || (begin == 0 && found != 0)) return false;
    at = found + part.size();
    if (end == pattern.size()) return begin == 0 || part.empty() || line.ends_with(part);
    begin = end + kAny.size();
  }
  return true;
}

bool has_line(const std::string& output, const std::string& expected) {
  std::istringstream text(output);
  for (std::string line; std::getline(text, line);) {
    // A table row of a document may leave out its last columns.
    if (matches(expected, line) || matches(expected + " …", line)) return true;
  }
  return false;
}

class Tutorials : public testing::TestWithParam<const char*> {};

TEST_P(Tutorials, TheCommandsPrintWhatTheDocumentSays) {
  const TempDir dir;
  fs::create_directory_symlink(fixture(""), dir / "testdata");
  const std::string path =
      "PATH=" + fs::path(FERRY_BINARY).parent_path().string() + ":" + std::getenv("PATH");
  const std::vector<Step> steps =
      steps_of(fixture("../docs/tutorials/") + GetParam() + std::string(".md"));
  EXPECT_GE(steps.size(), 3u);
  for (const Step& step : steps) {
    SCOPED_TRACE(step.commands);
    const std::string script = "set -eo pipefail\ncd '" + dir.path() + "'\n" + step.commands;
    const Outcome outcome = run_program("/bin/bash", {"-c", script}, {path});
    ASSERT_EQ(outcome.code, 0) << outcome.out << outcome.err;
    for (const std::string& line : step.expected) {
      EXPECT_TRUE(has_line(outcome.out + outcome.err, line)) << line << "\n" << outcome.out;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, Tutorials, testing::Values("prove", "budget", "slurm", "ci"),
                         [](const auto& tutorial) { return std::string(tutorial.param); });

}  // namespace
}  // namespace ferry::tutorials_test
