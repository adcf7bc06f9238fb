#include "cli/completion.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

namespace ferry::cli {
namespace {

// bash also splits words at '=', so "--option=value" is three words.
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

// Returns the bash command that offers values of an option; ":" if any text is a value.
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

// Returns the bash case that takes a verb after the words before it.
std::string step(const VerbSpec& verb) {
  const size_t blank = verb.name.rfind(' ');
  const std::string before = blank == verb.name.npos ? "" : verb.name.substr(0, blank);
  return fmt::format("      '{}|{}') verb='{}' ;;\n", before, verb.own_name(), verb.name);
}

// Returns a bash case for each option, which offers values behind the option's name.
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

// Returns the bash case that offers options, verbs and positional arguments of a verb.
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

constexpr const char* kFishBegin = R"fish(# fish completion for ferry
function __ferry_verb
    set -l verb
    for word in (commandline -opc)[2..-1]
        switch "$verb|$word"
)fish";
constexpr const char* kThen = R"fish(        end
    end
    echo $verb
end
function __ferry_at
    test "$(__ferry_verb)" = "$argv"
end
complete -c ferry -f
)fish";

std::string quoted_text(std::string_view text) {
  std::string out = "'";
  for (const char c : text) {
    if (c == '\'' || c == '\\') out += '\\';
    out += c;
  }
  return out + "'";
}

std::string verb_names(const std::deque<VerbSpec>& verbs) {
  std::string names;
  for (const VerbSpec& verb : verbs) names += (names.empty() ? "" : " ") + verb.own_name();
  return names;
}

// In fish, -x means that a value is required and is no file; -r -F, that a file is required.
std::string fish_value(const LineSpec& line, const OptionSpec& option) {
  switch (completes(option)) {
    case Completes::kWords:
      return fmt::format(" -x -a '{}'", fmt::join(option.words, " "));
    case Completes::kVerbs:
      return fmt::format(" -x -a '{}'", verb_names(line.verbs));
    case Completes::kFiles:
      return " -r -F";
    case Completes::kDirectories:
      return " -x -a '(__fish_complete_directories)'";
    case Completes::kNothing:
      break;
  }
  return " -x";
}

std::string option_line(const LineSpec& line, const std::string& condition,
                        const OptionSpec& option) {
  std::string names;
  for (const std::string& name : option.names) {
    names += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
  }
  std::string value = option.is_flag() ? std::string() : fish_value(line, option);
  if (option.is_positional()) {
    if (value == " -x") return {};
    if (value.starts_with(" -x")) value = value.substr(3);  // -x is for options
    if (value.starts_with(" -r")) value = value.substr(3);
  }
  return fmt::format("complete -c ferry{}{}{} -d {}\n", condition, names, value,
                     quoted_text(option.help));
}

std::string at(const std::string& verb) { return fmt::format(" -n '__ferry_at {}'", verb); }

std::string fish_verbs(const std::string& before, const std::deque<VerbSpec>& verbs) {
  std::string text;
  for (const VerbSpec& verb : verbs) {
    text += fmt::format("complete -c ferry{} -a {} -d {}\n", at(before), verb.own_name(),
                        quoted_text(verb.help));
  }
  return text;
}

// Escapes a text inside single quotes for zsh's _arguments, to which ':' and brackets have a
// meaning.
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

// Returns zsh text such as "'(-o --out)'{-o,--out}'[text]:DIR:_files -/'".
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

// Returns a zsh function that calls the function of the verb that comes next.
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

std::string fish_completion(const LineSpec& line) {
  std::string text = kFishBegin;
  for (const VerbSpec* verb : all_verbs(line)) {
    const size_t blank = verb->name.rfind(' ');
    text += fmt::format("            case '{}|{}'\n                set verb '{}'\n",
                        blank == verb->name.npos ? "" : verb->name.substr(0, blank),
                        verb->own_name(), verb->name);
  }
  text += kThen + fish_verbs("", line.verbs);
  for (const OptionSpec& option : line.options) text += option_line(line, "", option);
  for (const VerbSpec* verb : all_verbs(line)) {
    text += fish_verbs(verb->name, verb->verbs);
    for (const OptionSpec& option : verb->options) {
      text += option_line(line, at(verb->name), option);
    }
  }
  return text;
}

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
