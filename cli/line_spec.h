// Describes the verbs and options that a CommandLine has declared. Help, man pages and completions
// are made from this description alone, so that they cannot differ from what is parsed.
#pragma once

#include <deque>
#include <string>
#include <vector>

namespace ferry::cli {

struct OptionSpec {
  std::vector<std::string> names = {};  // such as "-o", "--out"; empty for a positional argument
  std::string value = {};               // such as "FILE"; empty for a flag
  std::vector<std::string> words = {};  // allowed values; empty: any text
  std::string default_text = {};        // default value that help shows; empty: none
  std::string help = {};
  std::string group = {};  // heading in lists; empty for options before the first heading
  bool required = false;
  bool repeated = false;

  bool is_positional() const { return names.empty(); }
  bool is_flag() const { return value.empty(); }
};

struct Example {
  std::string line;  // such as "ferry check BUNDLE"
  std::string what;  // sentence about the effect of the line
};

struct ExitCode {
  std::string code;  // such as "1" or "128+N"
  std::string meaning;
};

struct VerbSpec {
  std::string name = {};  // such as "convert", or with the verb above, "batch run"
  std::string help = {};  // one line of text
  std::string task = {};  // heading in the list of verbs, such as "Convert"; may be empty
  std::string description = {};
  std::vector<OptionSpec> options = {};
  std::vector<Example> examples = {};
  std::vector<ExitCode> exit_codes = {};  // add to or replace LineSpec::exit_codes
  std::deque<VerbSpec> verbs = {};        // verbs below this verb; a deque keeps their addresses

  std::string own_name() const { return name.substr(name.rfind(' ') + 1); }
};

// The description of the whole command line.
struct LineSpec {
  std::string help = {};
  std::vector<Example> examples = {};
  std::vector<OptionSpec> options = {};   // options that every verb has
  std::vector<ExitCode> exit_codes = {};  // exit codes that every verb has
  std::deque<VerbSpec> verbs = {};
};

// The kind of values that a shell can offer for an option.
enum class Completes { kNothing, kWords, kVerbs, kFiles, kDirectories };
Completes completes(const OptionSpec& option);

// Returns a text such as "-o, --out DIR" or "SRC".
std::string label(const OptionSpec& option);

// Returns the exit codes of a verb in ascending order.
std::vector<ExitCode> exit_codes_of(const LineSpec& line, const VerbSpec& verb);

// Returns the verb of words such as {"batch", "run"}, or nullptr.
const VerbSpec* find_verb(const LineSpec& line, const std::vector<std::string>& words);

// Returns all verbs. Verbs below another verb come after it.
std::vector<const VerbSpec*> all_verbs(const LineSpec& line);

}  // namespace ferry::cli
