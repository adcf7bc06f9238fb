// CommandLine: the verbs and their options. A thin face on CLI11, which only command_line.cc
// includes because it is slow to compile.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/context.h"
#include "core/result.h"

namespace CLI {
class App;
}

namespace ferry::cli {

// Options write into variables that must live as long as the CommandLine: each verb keeps them in a
// shared_ptr that its action holds. The value at the time of the call is the default shown by
// --help.
class Verb {
 public:
  explicit Verb(CLI::App* app, Action* chosen) : app_(app), chosen_(chosen) {}

  Verb& positional(const std::string& name, std::string& value, const std::string& help);
  // One that may be absent.
  Verb& optional_positional(const std::string& name, std::string& value, const std::string& help);
  // One or more values.
  Verb& positional(const std::string& name, std::vector<std::string>& value,
                   const std::string& help);
  // Any number of values, none too.
  Verb& positionals(const std::string& name, std::vector<std::string>& value,
                    const std::string& help);
  Verb& flag(const std::string& name, bool& value, const std::string& help);
  Verb& option(const std::string& name, std::string& value, const std::string& help);
  Verb& option(const std::string& name, int64_t& value, const std::string& help);
  Verb& option(const std::string& name, double& value, const std::string& help);
  Verb& option(const std::string& name, std::optional<int64_t>& value, const std::string& help);
  Verb& option(const std::string& name, std::optional<double>& value, const std::string& help);
  // May be given several times, one value each.
  Verb& option(const std::string& name, std::vector<std::string>& value, const std::string& help);
  // One of a few words.
  Verb& choice(const std::string& name, std::string& value, const std::vector<std::string>& words,
               const std::string& help);
  // A verb below this one: "ferry batch run". One of them is then required.
  Verb verb(const std::string& name, const std::string& help);
  // What the verb does once the whole line has been understood.
  void action(Action action);

 private:
  CLI::App* app_;
  Action* chosen_;
};

class CommandLine {
 public:
  // Adds the global options, which may stand before or after the verb.
  explicit CommandLine(Context& context);
  ~CommandLine();

  Verb verb(const std::string& name, const std::string& help);
  // The chosen verb's action, or one that prints help or the version. kUsage for anything else.
  Result<Action> parse(int argc, char** argv);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ferry::cli
