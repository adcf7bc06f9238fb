#include <fmt/format.h>
#include <fmt/ranges.h>

#include <string>
#include <string_view>

#include "cli/completion.h"

namespace ferry::cli {
namespace {

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

// -x: a value that is no file; -r -F: one that is.
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
    if (value.starts_with(" -x")) value = value.substr(3);  // there is no option to require it
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

}  // namespace

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

}  // namespace ferry::cli
