// The description of the command line: verbs and their options, as CommandLine has declared them.
// Help, man pages and completions are made of this and of nothing else, so that they cannot differ
// from what is parsed.
#pragma once

#include <deque>
#include <string>
#include <vector>

namespace ferry::cli {

struct OptionSpec {
  std::vector<std::string> names = {};  // "-o", "--out"; none for a positional
  std::string value = {};               // "FILE"; empty for a flag
  std::vector<std::string> words = {};  // what the value may be, where it is one of a few words
  std::string default_text = {};        // empty where there is none to show
  std::string help = {};
  std::string group = {};  // heading in lists; empty for the first ones
  bool required = false;
  bool repeated = false;

  bool is_positional() const { return names.empty(); }
  bool is_flag() const { return value.empty(); }
};

struct Example {
  std::string line;  // "ferry check BUNDLE"
  std::string what;  // what it does
};

struct ExitCode {
  std::string code;  // "1", "128+N"
  std::string meaning;
};

struct VerbSpec {
  std::string name = {};  // "convert"; with the verbs that it is below: "batch run"
  std::string help = {};  // one line
  std::string description = {};
  std::vector<OptionSpec> options = {};
  std::vector<Example> examples = {};
  std::vector<ExitCode> exit_codes = {};  // beside or instead of those of every verb
  std::deque<VerbSpec> verbs = {};        // below this one; their addresses stay

  std::string own_name() const { return name.substr(name.rfind(' ') + 1); }
};

// The whole line: what stands before the verbs.
struct LineSpec {
  std::string help = {};
  std::vector<OptionSpec> options = {};   // of every verb
  std::vector<ExitCode> exit_codes = {};  // of every verb
  std::deque<VerbSpec> verbs = {};
};

// The values that a shell can offer for an option.
enum class Completes { kNothing, kWords, kVerbs, kFiles, kDirectories };
Completes completes(const OptionSpec& option);

// "-o, --out DIR", "SRC".
std::string label(const OptionSpec& option);

// The exit codes of a verb, in their order.
std::vector<ExitCode> exit_codes_of(const LineSpec& line, const VerbSpec& verb);

// The verb of these words, or nullptr: {"batch", "run"}.
const VerbSpec* find_verb(const LineSpec& line, const std::vector<std::string>& words);

// All verbs, those below others behind them.
std::vector<const VerbSpec*> all_verbs(const LineSpec& line);

}  // namespace ferry::cli
