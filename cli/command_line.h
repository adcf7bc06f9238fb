// A CommandLine declares and parses the verbs and their options. It wraps CLI11, which only
// command_line.cc includes, because CLI11 is slow to compile.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/context.h"
#include "cli/line_spec.h"
#include "core/result.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace ferry::cli {

// Options write into variables that must live as long as the CommandLine. Each verb keeps them in a
// shared_ptr that its action holds. --help shows the value at the time of the call as the default.
//
// A name such as "-o,--out DIR" ends with the name of the option's value. Shells complete files for
// values with the names FILE, PATH, SRC, IMAGE, PROGRAM and PLAN, and directories for DIR, BUNDLE
// and OUT.
class Verb {
 public:
  // Variables whose texts may be names of models.
  struct Models {
    std::vector<std::string*> texts;
    std::vector<std::vector<std::string>*> lists;
  };
  Verb(CLI::App* app, VerbSpec* spec, Action* chosen, Models* models)
      : app_(app), spec_(spec), chosen_(chosen), models_(models) {}

  Verb& positional(const std::string& name, std::string& value, const std::string& help);
  // Declares a positional argument that may be absent.
  Verb& optional_positional(const std::string& name, std::string& value, const std::string& help);
  // Declares a positional argument with one or more values.
  Verb& positional(const std::string& name, std::vector<std::string>& value,
                   const std::string& help);
  // Declares a positional argument with any number of values, also none.
  Verb& positionals(const std::string& name, std::vector<std::string>& value,
                    const std::string& help);
  // Declares a positional argument that is one of `words`.
  Verb& positional_choice(const std::string& name, std::string& value,
                          const std::vector<std::string>& words, const std::string& help);
  Verb& flag(const std::string& name, bool& value, const std::string& help);
  Verb& option(const std::string& name, std::string& value, const std::string& help);
  // Declares an option for which the empty text is a value like any other.
  Verb& option(const std::string& name, std::optional<std::string>& value, const std::string& help);
  Verb& option(const std::string& name, int64_t& value, const std::string& help);
  Verb& option(const std::string& name, double& value, const std::string& help);
  // The value of a name such as "--memory SIZE" is a number of bytes with a unit, "4GB".
  Verb& option(const std::string& name, std::optional<int64_t>& value, const std::string& help);
  Verb& option(const std::string& name, std::optional<double>& value, const std::string& help);
  // Declares an option that may be given several times, with one value each.
  Verb& option(const std::string& name, std::vector<std::string>& value, const std::string& help);
  // Declares an option whose value is one of `words`.
  Verb& choice(const std::string& name, std::string& value, const std::vector<std::string>& words,
               const std::string& help);

  // Sets `given` if the line has the option that was declared last, even with its default value.
  Verb& notes_if_given(bool& given);
  // Makes the option that was declared last accept the name of a model in the Hugging Face cache,
  // such as "Qwen/Qwen3-0.6B" (checkpoint::find_source()). Its variable, which is a text or a list
  // of texts, gets the path once the whole line is understood.
  Verb& finds_models();

  // Sets the heading of the options that are declared next.
  Verb& group(const std::string& title);
  // Adds a paragraph below the line of help.
  Verb& description(const std::string& text);
  // Adds a command line as an example, with a sentence about its effect.
  Verb& example(const std::string& line, const std::string& what);
  // Adds exit codes to the common ones, or replaces their meaning.
  Verb& exit_codes(std::vector<ExitCode> codes);

  // Declares a verb below this verb, such as "run" below "batch". A line must then name one of
  // them.
  Verb verb(const std::string& name, const std::string& help);
  // Sets the function that CommandLine::parse() returns for a line with this verb.
  void action(Action action);

 private:
  OptionSpec& describe(CLI::Option* option, const std::string& name, const std::string& value,
                       const std::string& help);

  CLI::App* app_;
  VerbSpec* spec_;
  Action* chosen_;
  Models* models_;
  // The variable of the option that was declared last; both are null for other types.
  CLI::Option* last_option_ = nullptr;
  std::string* last_text_ = nullptr;
  std::vector<std::string>* last_list_ = nullptr;
  std::string group_ = {};
};

class CommandLine {
 public:
  // Adds the global options, which may stand before or after the verb.
  explicit CommandLine(Context& context);
  ~CommandLine();

  // Sets the heading, in lists of verbs, of the verbs that are declared next.
  void task(const std::string& title);
  Verb verb(const std::string& name, const std::string& help);
  // Returns everything that has been declared. The reference is valid as long as the CommandLine.
  const LineSpec& spec() const;
  // Returns the action of the line's verb, or an action that prints help or the version. Returns
  // kUsage for a line that was not declared.
  Result<Action> parse(int argc, char** argv);
  // Whether the words, without the program's name, are a line that was declared. Use an object of
  // its own for each line, because the variables of options keep what they get.
  bool accepts(const std::vector<std::string>& words);
  // Sets the function that explains lines that nobody declared: it gets the words of the line and
  // returns further lines of the error, such as "did you mean: ferry run m.gguf --max-new 8".
  using Explain = std::function<std::vector<std::string>(const std::vector<std::string>& words)>;
  void explain_with(Explain explain);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ferry::cli
