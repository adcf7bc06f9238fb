// CommandLine: the verbs and their options. A thin face on CLI11, which only command_line.cc
// includes because it is slow to compile.
#pragma once

#include <cstdint>
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

// Options write into variables that must live as long as the CommandLine: each verb keeps them in a
// shared_ptr that its action holds. The value at the time of the call is the default shown by
// --help.
//
// The name of an option may end with that of its value: "-o,--out DIR". Of FILE, PATH, SRC, IMAGE,
// PROGRAM and PLAN the shells complete files, of DIR, BUNDLE and OUT directories.
class Verb {
 public:
  Verb(CLI::App* app, VerbSpec* spec, Action* chosen) : app_(app), spec_(spec), chosen_(chosen) {}

  Verb& positional(const std::string& name, std::string& value, const std::string& help);
  // One that may be absent.
  Verb& optional_positional(const std::string& name, std::string& value, const std::string& help);
  // One or more values.
  Verb& positional(const std::string& name, std::vector<std::string>& value,
                   const std::string& help);
  // Any number of values, none too.
  Verb& positionals(const std::string& name, std::vector<std::string>& value,
                    const std::string& help);
  // One of a few words.
  Verb& positional_choice(const std::string& name, std::string& value,
                          const std::vector<std::string>& words, const std::string& help);
  Verb& flag(const std::string& name, bool& value, const std::string& help);
  Verb& option(const std::string& name, std::string& value, const std::string& help);
  // Where the empty text is a value too.
  Verb& option(const std::string& name, std::optional<std::string>& value, const std::string& help);
  Verb& option(const std::string& name, int64_t& value, const std::string& help);
  Verb& option(const std::string& name, double& value, const std::string& help);
  Verb& option(const std::string& name, std::optional<int64_t>& value, const std::string& help);
  Verb& option(const std::string& name, std::optional<double>& value, const std::string& help);
  // May be given several times, one value each.
  Verb& option(const std::string& name, std::vector<std::string>& value, const std::string& help);
  // One of a few words.
  Verb& choice(const std::string& name, std::string& value, const std::vector<std::string>& words,
               const std::string& help);

  // The heading of the options that follow.
  Verb& group(const std::string& title);
  // More than the one line of help: a paragraph.
  Verb& description(const std::string& text);
  // A line that works as it stands, but for its names, and what it does.
  Verb& example(const std::string& line, const std::string& what);
  // Those that mean something else than for every verb, or that not every verb has.
  Verb& exit_codes(std::vector<ExitCode> codes);

  // A verb below this one: "ferry batch run". One of them is then required.
  Verb verb(const std::string& name, const std::string& help);
  // The function that runs once the whole line has been understood.
  void action(Action action);

 private:
  OptionSpec& describe(CLI::Option* option, const std::string& name, const std::string& value,
                       const std::string& help);

  CLI::App* app_;
  VerbSpec* spec_;
  Action* chosen_;
  std::string group_ = {};
};

class CommandLine {
 public:
  // Adds the global options, which may stand before or after the verb.
  explicit CommandLine(Context& context);
  ~CommandLine();

  Verb verb(const std::string& name, const std::string& help);
  // All that has been declared; lives as long as the CommandLine.
  const LineSpec& spec() const;
  // The chosen verb's action, or one that prints help or the version. kUsage for anything else.
  Result<Action> parse(int argc, char** argv);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// " (did you mean --out?)", or nothing where no name is near.
std::string suggestion(const std::string& given, const std::vector<std::string>& names);

}  // namespace ferry::cli
