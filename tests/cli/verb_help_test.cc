// The help texts of the command line, and the files for tools that are made of them.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <sstream>

#include "tests/cli/ferry_process.h"
#include "tests/cli/verb_list.h"

namespace ferry::verb_help_test {
namespace {

using Line = std::vector<std::string>;

bool is_installed(const std::string& program) {
  return std::filesystem::exists("/usr/bin/" + program);
}

TEST(Help, TheDocumentOfFamiliesIsWhatTheFamiliesState) {
  const Outcome printed = run_ferry({"help", "--families"});
  EXPECT_EQ(printed.code, 0);
  std::ifstream file(FERRY_TESTDATA "/../docs/families.md");
  const std::string document{std::istreambuf_iterator<char>(file), {}};
  ASSERT_NE(printed.out.find("| qwen3 | qwen3 | qwen3 | Qwen3Backbone | yes |"), std::string::npos);
  EXPECT_NE(document.find(printed.out), std::string::npos)
      << "docs/families.md: please copy the output of `ferry help --families` into it";
}

TEST(Help, EveryVerbHasExamplesExitCodesAndTheOptionsOfAll) {
  const std::vector<Line> verbs = all_verbs();
  EXPECT_GE(verbs.size(), 10U);
  for (const Line& verb : verbs) {
    SCOPED_TRACE(text_of(verb));
    Line line = verb;
    line.push_back("--help");
    const Outcome help = run_ferry(line);
    EXPECT_EQ(help.code, 0);
    const bool is_leaf = help_entries(help.out, "Verbs:").empty();
    if (is_leaf) {
      EXPECT_NE(help.out.find("\nExamples:\n  "), std::string::npos);
    }
    EXPECT_NE(help.out.find("\nUsage: ferry " + text_of(verb)), std::string::npos);
    for (const char* part : {"--json", "-q, --quiet", "-v, --verbose", "--threads N",
                             "\nExit codes:\n", "\n  70      ", "\n  128+N   "}) {
      EXPECT_NE(help.out.find(part), std::string::npos) << part;
    }
    Line other = {"help"};
    other.insert(other.end(), verb.begin(), verb.end());
    EXPECT_EQ(run_ferry(other).out, help.out);
  }
}

TEST(Help, OfTheProgramIsThatOfHelp) {
  EXPECT_EQ(run_ferry({"help"}).out, run_ferry({"--help"}).out);
  EXPECT_EQ(run_ferry({"help", "--json"}).json()["result"]["text"], run_ferry({"help"}).out);
  EXPECT_EQ(run_ferry({"help", "convrt"}).err,
            "ferry: error: there is no verb 'convrt' (did you mean convert?)\n");
}

TEST(Help, LinesFitATerminal) {
  for (const Line& verb : all_verbs()) {
    Line line = verb;
    line.push_back("--help");
    std::istringstream lines(run_ferry(line).out);
    for (std::string text; std::getline(lines, text);) {
      // Labels and examples may be long. Text is wrapped.
      if (!text.starts_with("      ")) continue;
      EXPECT_LE(text.size(), 92U) << text;
    }
  }
}

TEST(ManPages, AreWrittenForEveryVerbAndLeadToEachOther) {
  const TempDir dir;
  ASSERT_EQ(run_ferry_once({"help", "--man-pages", dir.path()}).code, 0);
  std::set<std::string> names = {"ferry.1"};
  for (const Line& verb : all_verbs()) {
    std::string name = "ferry";
    for (const std::string& word : verb) name += "-" + word;
    names.insert(name + ".1");
  }
  std::set<std::string> written;
  for (const auto& [name, text] : files_in(dir.path())) {
    written.insert(name);
    EXPECT_TRUE(text.starts_with(".TH FERRY")) << name;
    EXPECT_NE(text.find(".SH \"EXIT STATUS\""), std::string::npos) << name;
  }
  EXPECT_EQ(written, names);
  // Existing files are not replaced.
  EXPECT_EQ(run_ferry_once({"help", "--man-pages", dir.path()}).code, 6);
}

TEST(ManPages, AreGoodRoff) {
  if (!is_installed("groff")) GTEST_SKIP() << "no groff";
  const TempDir dir;
  ASSERT_EQ(run_ferry_once({"help", "--man-pages", dir.path()}).code, 0);
  for (const auto& [name, text] : files_in(dir.path())) {
    const Outcome outcome = run_program("/usr/bin/groff", {"-man", "-ww", "-Tutf8", dir / name});
    EXPECT_EQ(outcome.code, 0) << name;
    EXPECT_EQ(outcome.err, "") << name;
  }
}

TEST(ManPages, SayWhatTheOptionsSay) {
  if (!is_installed("groff")) GTEST_SKIP() << "no groff";
  const TempDir dir;
  write_bytes(dir / "convert.1", run_ferry({"help", "--man", "convert"}).out);
  const std::string page =
      run_program("/usr/bin/groff", {"-man", "-Tascii", "-P-cbou", dir / "convert.1"}).out;
  for (const char* part : {"--dtype keep|f32|f16|bf16", "-n, --dry-run", "'layers.*.feed_forward",
                           "ferry convert checkpoint/ -o bundle/", "EXIT STATUS"}) {
    EXPECT_NE(page.find(part), std::string::npos) << part;
  }
}

// Returns the completions that bash offers after `words`.
std::set<std::string> offered(const Line& words) {
  std::string script = run_ferry({"completion", "bash"}).out + "COMP_WORDS=(ferry";
  for (const std::string& word : words) script += " '" + word + "'";
  script += ")\nCOMP_CWORD=" + std::to_string(words.size()) +
            "\ncompopt() { :; }\n_ferry\nprintf '%s\\n' \"${COMPREPLY[@]}\"\n";
  const TempDir dir;
  write_bytes(dir / "script", script);
  std::istringstream lines(run_program("/bin/bash", {dir / "script"}).out);
  std::set<std::string> all;
  for (std::string line; std::getline(lines, line);) {
    if (!line.empty()) all.insert(line);
  }
  return all;
}

using Words = std::set<std::string>;

TEST(Completion, BashOffersVerbsOptionsAndValues) {
  EXPECT_EQ(offered({"con"}), Words{"convert"});
  EXPECT_EQ(offered({"--quiet", "ver"}), Words{"verify"});
  EXPECT_EQ(offered({"convert", "--dty"}), Words{"--dtype"});
  EXPECT_EQ(offered({"convert", "x", "--dtype", ""}), (Words{"keep", "f32", "f16", "bf16"}));
  EXPECT_EQ(offered({"convert", "--dtype", "=", "b"}), Words{"bf16"});
  EXPECT_EQ(offered({"convert", "--threads", "4", "--over"}), Words{"--overwrite"});
  // `convert` is a path here, not the verb.
  EXPECT_EQ(offered({"inspect", "convert", "--dty"}), Words{});
  EXPECT_EQ(offered({"check", "--js"}), Words{"--json"});
  EXPECT_EQ(offered({"completion", ""}), (Words{"bash", "zsh", "fish"}));
  EXPECT_EQ(offered({"help", "che"}), Words{"check"});
  EXPECT_EQ(offered({"batch", "sta"}), Words{"status"});
  EXPECT_EQ(offered({"batch", "run", "--wor"}), Words{"--workers"});
  EXPECT_EQ(offered({"run", "--seed", ""}), Words{});
}

TEST(Completion, BashOffersPathsWithBlanks) {
  const TempDir dir;
  std::filesystem::create_directory(dir / "my bundle");
  write_bytes(dir / "my file", "");
  EXPECT_EQ(offered({"verify", dir / "my"}), Words{dir / "my bundle"});
  EXPECT_EQ(offered({"inspect", dir / "my"}), (Words{dir / "my bundle", dir / "my file"}));
  EXPECT_EQ(offered({"convert", "-o", dir / "my"}), Words{dir / "my bundle"});
}

TEST(Completion, ScriptsAreGoodForTheirShells) {
  const TempDir dir;
  for (const std::string shell : {"bash", "zsh", "fish"}) {
    if (!is_installed(shell)) continue;
    write_bytes(dir / shell, run_ferry({"completion", shell}).out);
    const Outcome outcome = run_program("/usr/bin/" + shell, {"-n", dir / shell});
    EXPECT_EQ(outcome.code, 0) << shell << outcome.err;
    EXPECT_EQ(outcome.err, "");
  }
}

TEST(Completion, FishOffersVerbsOptionsAndValues) {
  if (!is_installed("fish")) GTEST_SKIP() << "no fish";
  const TempDir dir;
  const std::string script = run_ferry({"completion", "fish"}).out;
  const auto has = [&](const std::string& line, const std::string& word) {
    write_bytes(dir / "script", script + "complete -C '" + line + "'\n");
    const Outcome outcome =
        run_program("/usr/bin/fish", {"-N", dir / "script"}, {"HOME=" + dir.path()});
    std::istringstream lines(outcome.out);
    for (std::string offer; std::getline(lines, offer);) {
      if (offer.substr(0, offer.find('\t')) == word) return true;
    }
    return false;
  };
  EXPECT_TRUE(has("ferry con", "convert"));
  EXPECT_TRUE(has("ferry convert --dt", "--dtype"));
  EXPECT_FALSE(has("ferry check --dt", "--dtype"));
  EXPECT_TRUE(has("ferry convert --dtype ", "bf16"));
  EXPECT_TRUE(has("ferry batch ", "status"));
}

}  // namespace
}  // namespace ferry::verb_help_test
