#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <deque>
#include <string>
#include <vector>

#include "cli/completion.h"

namespace ferry::cli {
namespace {

// bash splits words at '=' and ':' too.
constexpr const char* kBashBegin = R"(# bash completion for ferry
_ferry_words() { mapfile -t COMPREPLY < <(compgen -W "$1" -- "$cur"); }
_ferry_files() {
  compopt -o filenames
  mapfile -t COMPREPLY < <(compgen "$1" -- "$cur")
}
_ferry() {
  local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} verb= i
  COMPREPLY=()
  if [[ $cur == "=" ]]; then
    cur=
  elif [[ $prev == "=" ]]; then
    prev=${COMP_WORDS[COMP_CWORD-2]}
  fi
  for ((i = 1; i < COMP_CWORD; i++)); do
    case "$verb|${COMP_WORDS[i]}" in
)";

constexpr const char* kEnd = R"(  esac
}
complete -F _ferry ferry
)";

std::string listed_verbs(const std::deque<VerbSpec>& verbs) {
  std::vector<std::string> names;
  for (const VerbSpec& verb : verbs) names.push_back(verb.own_name());
  return fmt::format("{}", fmt::join(names, " "));
}

// What offers a value; a value that is anything gets nothing.
std::string offer(const LineSpec& line, const OptionSpec& option) {
  switch (completes(option)) {
    case Completes::kWords:
      return fmt::format("_ferry_words '{}'", fmt::join(option.words, " "));
    case Completes::kVerbs:
      return fmt::format("_ferry_words '{}'", listed_verbs(line.verbs));
    case Completes::kFiles:
      return "_ferry_files -f";
    case Completes::kDirectories:
      return "_ferry_files -d";
    case Completes::kNothing:
      break;
  }
  return ":";
}

std::string option_names(const std::vector<OptionSpec>& options) {
  std::string names;
  for (const OptionSpec& option : options) {
    for (const std::string& name : option.names) names += (names.empty() ? "" : " ") + name;
  }
  return names;
}

// A verb's step from the words before it.
std::string step(const VerbSpec& verb) {
  const size_t blank = verb.name.rfind(' ');
  const std::string before = blank == verb.name.npos ? "" : verb.name.substr(0, blank);
  return fmt::format("      '{}|{}') verb='{}' ;;\n", before, verb.own_name(), verb.name);
}

// The values of options, by the word before them.
std::string values(const LineSpec& line, const std::string& verb,
                   const std::vector<OptionSpec>& options) {
  std::string text;
  for (const OptionSpec& option : options) {
    if (option.is_positional() || option.is_flag()) continue;
    for (const std::string& name : option.names) {
      text += fmt::format("    {}|{}') {}; return ;;\n", verb, name, offer(line, option));
    }
  }
  return text;
}

std::string quoted_verb(const std::string& name) { return "'" + name; }

// All that may stand at a place where no value is expected.
std::string words(const LineSpec& line, const VerbSpec& verb) {
  const std::string names = option_names(verb.options) + " " + option_names(line.options);
  std::string text = fmt::format("    '{}')\n      if [[ $cur == -* ]]; then\n", verb.name);
  text += fmt::format("        _ferry_words '{}'\n", names);
  const auto first = std::find_if(verb.options.begin(), verb.options.end(),
                                  [](const OptionSpec& o) { return o.is_positional(); });
  std::string rest;
  if (!verb.verbs.empty()) {
    rest = fmt::format("_ferry_words '{}'", listed_verbs(verb.verbs));
  } else if (first != verb.options.end()) {
    rest = offer(line, *first);
  }
  if (!rest.empty()) text += fmt::format("      else\n        {}\n", rest);
  return text + "      fi ;;\n";
}

}  // namespace

std::string bash_completion(const LineSpec& line) {
  const std::vector<const VerbSpec*> verbs = all_verbs(line);
  std::string text = kBashBegin;
  for (const VerbSpec* verb : verbs) text += step(*verb);
  text += "    esac\n  done\n  case \"$verb|$prev\" in\n";
  for (const VerbSpec* verb : verbs) text += values(line, quoted_verb(verb->name), verb->options);
  text += values(line, "*'", line.options) + "  esac\n  case \"$verb\" in\n";
  for (const VerbSpec* verb : verbs) text += words(line, *verb);
  text += fmt::format("    *) _ferry_words '{} {}' ;;\n", listed_verbs(line.verbs),
                      option_names(line.options));
  return text + kEnd;
}

}  // namespace ferry::cli
