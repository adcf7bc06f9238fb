#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "cli/completion.h"

namespace ferry::cli {
namespace {

// Inside of single quotes, in a specification of _arguments: ':' and brackets mean something there.
std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '\'') {
      out += "'\\''";
      continue;
    }
    if (c == '[' || c == ']' || c == ':' || c == '\\') out += '\\';
    out += c;
  }
  return out;
}

std::string action_of(const OptionSpec& option) {
  switch (completes(option)) {
    case Completes::kWords:
      return fmt::format("({})", fmt::join(option.words, " "));
    case Completes::kVerbs:
      return "_ferry_verbs";
    case Completes::kFiles:
      return "_files";
    case Completes::kDirectories:
      return "_files -/";
    case Completes::kNothing:
      break;
  }
  return " ";
}

std::string zsh_value(const OptionSpec& option) {
  return fmt::format(":{}:{}", escaped(option.value), action_of(option));
}

// "'(-o --out)'{-o,--out}'[text]:DIR:_files -/'"
std::string specification(const OptionSpec& option) {
  if (option.is_positional()) {
    return fmt::format("'{}{}'", option.repeated ? "*" : "", zsh_value(option));
  }
  const std::string rest =
      fmt::format("[{}]{}", escaped(option.help), option.is_flag() ? "" : zsh_value(option));
  if (option.names.size() == 1) {
    return fmt::format("'{}{}{}'", option.repeated ? "*" : "", option.names[0], rest);
  }
  const std::string once =
      option.repeated ? "'*'" : fmt::format("'({})'", fmt::join(option.names, " "));
  return fmt::format("{}{{{}}}'{}'", once, fmt::join(option.names, ","), rest);
}

std::string specifications(const std::vector<OptionSpec>& options) {
  std::string text;
  for (const OptionSpec& option : options) text += " \\\n    " + specification(option);
  return text;
}

std::string function_name(const VerbSpec* verb) {
  if (verb == nullptr) return "_ferry";
  std::string name = "_ferry_verb_" + verb->name;
  std::ranges::replace(name, ' ', '_');
  return name;
}

std::string verb_list(const std::string& name, const std::deque<VerbSpec>& verbs) {
  std::string text = fmt::format("{}() {{\n  local -a verbs=(\n", name);
  for (const VerbSpec& verb : verbs) {
    text += fmt::format("    '{}:{}'\n", verb.own_name(), escaped(verb.help));
  }
  return text + "  )\n  _describe verb verbs\n}\n";
}

// A function that goes on to those of the verbs below.
std::string branching(const std::string& name, const std::string& list,
                      const std::deque<VerbSpec>& verbs) {
  std::string text = fmt::format(
      "{}() {{\n  local state\n  _arguments -C $ferry_common '1:verb:{}' '*::word:->verb'\n"
      "  [[ $state == verb ]] || return\n  case $words[1] in\n",
      name, list);
  for (const VerbSpec& verb : verbs) {
    text += fmt::format("    {}) {} ;;\n", verb.own_name(), function_name(&verb));
  }
  return text + "  esac\n}\n";
}

}  // namespace

std::string zsh_completion(const LineSpec& line) {
  std::string text = "#compdef ferry\nlocal -a ferry_common=(" + specifications(line.options) +
                     "\n)\n" + verb_list("_ferry_verbs", line.verbs);
  for (const VerbSpec* verb : all_verbs(line)) {
    const std::string name = function_name(verb);
    if (verb->verbs.empty()) {
      text += fmt::format("{}() {{\n  _arguments $ferry_common{}\n}}\n", name,
                          specifications(verb->options));
    } else {
      text +=
          verb_list(name + "_verbs", verb->verbs) + branching(name, name + "_verbs", verb->verbs);
    }
  }
  return text + branching("_ferry", "_ferry_verbs", line.verbs) + "_ferry \"$@\"\n";
}

}  // namespace ferry::cli
