#include "cli/help_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <string_view>

namespace ferry::cli {
namespace {

constexpr size_t kWidth = 92;
constexpr size_t kColumn = 26;  // where what is said of an option begins

// Lines of at most kWidth columns, all but the first with `indent` blanks.
std::string wrapped(std::string_view text, size_t indent) {
  std::string lines;
  size_t used = indent;
  while (!text.empty()) {
    const size_t end = std::min(text.find(' '), text.size());
    const bool first = lines.empty();
    if (!first && used + 1 + end > kWidth) {
      lines += "\n" + std::string(indent, ' ');
      used = indent;
    } else if (!first) {
      lines += ' ';
      ++used;
    }
    lines += text.substr(0, end);
    used += end;
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines + "\n";
}

// "  label      text"; a label that is long has a line of its own.
std::string entry(const std::string& label, const std::string& text) {
  std::string line = "  " + label;
  if (line.size() + 2 > kColumn) {
    line += "\n" + std::string(kColumn, ' ');
  } else {
    line.resize(kColumn, ' ');
  }
  return line + wrapped(text, kColumn);
}

std::string option_text(const OptionSpec& option) {
  std::string text = option.help;
  if (option.is_positional() && !option.words.empty()) {
    text += fmt::format(" ({})", fmt::join(option.words, ", "));
  }
  if (!option.default_text.empty()) text += fmt::format(" [{}]", option.default_text);
  return text;
}

std::string option_lines(const std::vector<OptionSpec>& options, const std::string& title,
                         bool (*belongs)(const OptionSpec&)) {
  std::string text;
  std::string group = title;
  bool begun = false;
  for (const OptionSpec& option : options) {
    if (!belongs(option)) continue;
    const std::string& heading = option.group.empty() ? title : option.group;
    if (!begun || heading != group) text += fmt::format("\n{}:\n", heading);
    begun = true;
    group = heading;
    text += entry(label(option), option_text(option));
  }
  return text;
}

bool is_positional(const OptionSpec& option) { return option.is_positional(); }
bool is_named(const OptionSpec& option) { return !option.is_positional(); }

std::string verb_lines(const std::deque<VerbSpec>& verbs) {
  std::string text = "\nVerbs:\n";
  for (const VerbSpec& verb : verbs) text += entry(verb.own_name(), verb.help);
  return text;
}

std::string example_lines(const std::vector<Example>& examples) {
  if (examples.empty()) return {};
  std::string text = "\nExamples:\n";
  for (const Example& example : examples) {
    text += fmt::format("  {}\n      {}", example.line, wrapped(sentence(example.what), 6));
  }
  return text;
}

std::string code_lines(const std::vector<ExitCode>& codes) {
  std::string text = "\nExit codes:\n";
  for (const ExitCode& code : codes) {
    text += fmt::format("  {:7} {}", code.code, wrapped(code.meaning, 10));
  }
  return text;
}

}  // namespace

std::string sentence(std::string text) {
  if (text.empty()) return text;
  text[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(text[0])));
  return text.ends_with('.') ? text : text + ".";
}

std::string usage(const VerbSpec& verb) {
  std::string text = "ferry " + verb.name;
  if (!verb.verbs.empty()) return text + " VERB [OPTIONS]";
  for (const OptionSpec& option : verb.options) {
    if (!option.is_positional()) continue;
    const std::string value = option.value + (option.repeated ? "..." : "");
    text += option.required ? " " + value : fmt::format(" [{}]", value);
  }
  return text + " [OPTIONS]";
}

std::string help_text(const LineSpec& line) {
  return wrapped(line.help, 0) + "\nUsage: ferry VERB [OPTIONS]\n" + verb_lines(line.verbs) +
         option_lines(line.options, "Options of every verb", is_named) +
         code_lines(line.exit_codes) +
         "\n`ferry VERB --help` lists the options of a verb, with examples.\n";
}

std::string help_text(const LineSpec& line, const VerbSpec& verb) {
  std::string text = wrapped(sentence(verb.help), 0);
  if (!verb.description.empty()) text += "\n" + wrapped(verb.description, 0);
  text += fmt::format("\nUsage: {}\n", usage(verb));
  if (!verb.verbs.empty()) text += verb_lines(verb.verbs);
  return text + option_lines(verb.options, "Arguments", is_positional) +
         option_lines(verb.options, "Options", is_named) +
         option_lines(line.options, "Options of every verb", is_named) +
         example_lines(verb.examples) + code_lines(exit_codes_of(line, verb));
}

std::vector<ExitCode> common_exit_codes() {
  return {{"0", "done"},
          {"2", "the command line makes no sense"},
          {"3", "bad input: malformed, incomplete or damaged"},
          {"4", "unsupported: well formed, but not something that Ferry does"},
          {"5", "input or output failed"},
          {"70", "a defect of Ferry; please report it"},
          {"128+N", "stopped by signal N"}};
}

}  // namespace ferry::cli
