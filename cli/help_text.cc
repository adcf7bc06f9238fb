#include "cli/help_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <string_view>
#include <utility>
#include <vector>

#include "cli/envelope.h"
#include "core/version.h"

namespace ferry::cli {
namespace {

constexpr size_t kWidth = 92;
constexpr size_t kColumn = 26;  // column where the help of an option begins

// Wraps text at kWidth columns. All lines but the first are indented by `indent` blanks.
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

// Returns "  label      text". A long label has a line of its own.
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

// Verbs of the same task stand below a heading of their own.
std::string verb_lines(const std::deque<VerbSpec>& verbs) {
  std::string text;
  std::string task;
  for (const VerbSpec& verb : verbs) {
    if (text.empty() || verb.task != task) {
      text += verb.task.empty() ? "\nVerbs:\n" : fmt::format("\nVerbs: {}\n", verb.task);
    }
    task = verb.task;
    text += entry(verb.own_name(), verb.help);
  }
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

// Escapes text for roff, in which dots, backslashes, hyphens and quotes have a meaning.
std::string plain(std::string_view text) {
  std::string out;
  if (text.starts_with('.') || text.starts_with('\'')) out += "\\&";
  for (const char c : text) {
    switch (c) {
      case '\\':
        out += "\\e";
        break;
      case '-':
        out += "\\-";
        break;
      case '\'':
        out += "\\(aq";
        break;
      case '`':
        out += "\\(ga";
        break;
      case '^':
        out += "\\(ha";
        break;
      case '~':
        out += "\\(ti";
        break;
      default:
        out += c;
    }
  }
  return out;
}

std::string bold(std::string_view text) { return fmt::format("\\fB{}\\fR", plain(text)); }
std::string italic(std::string_view text) { return fmt::format("\\fI{}\\fR", plain(text)); }

std::string heading(std::string_view title) { return fmt::format(".SH \"{}\"\n", title); }

std::string tagged(const std::string& tag, const std::string& text) {
  return fmt::format(".TP\n{}\n{}\n", tag, text);
}

std::string tag_of(const OptionSpec& option) {
  if (option.is_positional()) return italic(option.value);
  std::string tag;
  for (const std::string& name : option.names) tag += (tag.empty() ? "" : ", ") + bold(name);
  if (option.is_flag()) return tag;
  std::string value = italic(option.value);  // a line may break behind each of several words
  for (size_t at = 0; (at = value.find('|', at)) != std::string::npos; at += 3) {
    value.insert(at + 1, "\\:");
  }
  return tag + " " + value;
}

std::string option_entry(const OptionSpec& option) {
  std::string text = plain(sentence(option.help));
  if (option.is_positional() && !option.words.empty()) {
    std::string words;
    for (const std::string& word : option.words) words += (words.empty() ? "" : ", ") + bold(word);
    text += "\nOne of " + words + ".";
  }
  if (!option.default_text.empty()) text += "\nThe default is " + bold(option.default_text) + ".";
  return text;
}

// Each run of options with one group has the group as its title.
std::string options(const std::vector<OptionSpec>& all, std::string_view title, bool positional) {
  std::string text;
  std::string group;
  for (const OptionSpec& option : all) {
    if (option.is_positional() != positional) continue;
    if (text.empty()) text += heading(title);
    if (option.group != group) {
      text += option.group.empty() ? ".SS Others\n" : fmt::format(".SS {}\n", plain(option.group));
      group = option.group;
    }
    text += tagged(tag_of(option), option_entry(option));
  }
  return text;
}

std::string verbs(const std::deque<VerbSpec>& all) {
  if (all.empty()) return {};
  std::string text = heading("VERBS");
  for (const VerbSpec& verb : all) {
    text +=
        tagged(fmt::format("\\fB{}\\fR(1)", plain(man_name(&verb))), plain(sentence(verb.help)));
  }
  return text;
}

std::string examples(const std::vector<Example>& all) {
  if (all.empty()) return {};
  std::string text = heading("EXAMPLES");
  for (const Example& example : all)
    text += tagged(bold(example.line), plain(sentence(example.what)));
  return text;
}

std::string codes(const std::vector<ExitCode>& all) {
  std::string text = heading("EXIT STATUS");
  for (const ExitCode& code : all) text += tagged(bold(code.code), plain(code.meaning));
  return text;
}

std::string upper(std::string text) {
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return std::toupper(c); });
  return text;
}

// Returns the head of a page. ".nh" turns hyphenation off, which would break names of options.
std::string title(const std::string& name, const std::string& help) {
  std::string what = help;
  if (!what.empty()) what[0] = static_cast<char>(std::tolower(static_cast<unsigned char>(what[0])));
  while (what.ends_with('.')) what.pop_back();
  return fmt::format(".TH {} 1 \"\" \"ferry {}\" \"Ferry\"\n.nh\n.ad l\n", plain(upper(name)),
                     plain(version())) +
         heading("NAME") + fmt::format("{} \\- {}\n", plain(name), plain(what));
}

std::string synopsis(const std::string& line) {
  return heading("SYNOPSIS") + bold(line.substr(0, line.find(" ["))) +
         (line.find(" [") == line.npos ? "" : plain(line.substr(line.find(" [")))) + "\n";
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
  return wrapped(line.help, 0) + example_lines(line.examples) + "\nUsage: ferry VERB [OPTIONS]\n" +
         verb_lines(line.verbs) + option_lines(line.options, "Options of every verb", is_named) +
         code_lines(line.exit_codes) +
         "\n`ferry VERB --help` lists the options of a verb, with examples.\n";
}

std::string help_text(const LineSpec& line, const VerbSpec& verb) {
  std::string text = wrapped(sentence(verb.help), 0) + example_lines(verb.examples);
  if (!verb.description.empty()) text += "\n" + wrapped(verb.description, 0);
  text += fmt::format("\nUsage: {}\n", usage(verb));
  if (!verb.verbs.empty()) text += verb_lines(verb.verbs);
  return text + option_lines(verb.options, "Arguments", is_positional) +
         option_lines(verb.options, "Options", is_named) +
         option_lines(line.options, "Options of every verb", is_named) +
         code_lines(exit_codes_of(line, verb));
}

std::vector<std::string> verb_overview(const LineSpec& line, const VerbSpec* verb) {
  constexpr int kTask = 9, kName = 12;
  std::vector<std::string> lines;
  std::string last;
  for (const VerbSpec& next : verb == nullptr ? line.verbs : verb->verbs) {
    std::string text = fmt::format("{:{}}{}", next.own_name(), kName, next.help);
    if (!next.task.empty()) {
      text = fmt::format("{:{}}{}", next.task == last ? "" : next.task, kTask, text);
    }
    last = next.task;
    lines.push_back(std::move(text));
  }
  if (verb != nullptr) return lines;
  for (const Example& example : line.examples) {
    if (lines.size() < kMostDetails) lines.push_back(example.line);
  }
  return lines;
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

std::string man_name(const VerbSpec* verb) {
  if (verb == nullptr) return "ferry";
  std::string name = "ferry-" + verb->name;
  std::ranges::replace(name, ' ', '-');
  return name;
}

std::string man_page(const LineSpec& line, const VerbSpec* verb) {
  if (verb == nullptr) {
    return title("ferry", line.help) + synopsis("ferry VERB [OPTIONS]") + verbs(line.verbs) +
           options(line.options, "OPTIONS OF EVERY VERB", false) + codes(line.exit_codes);
  }
  std::string text = title(man_name(verb), verb->help) + synopsis(usage(*verb));
  if (!verb->description.empty()) {
    text += heading("DESCRIPTION") + plain(verb->description) + "\n";
  }
  return text + verbs(verb->verbs) + options(verb->options, "ARGUMENTS", true) +
         options(verb->options, "OPTIONS", false) +
         options(line.options, "OPTIONS OF EVERY VERB", false) + examples(verb->examples) +
         codes(exit_codes_of(line, *verb)) + heading("SEE ALSO") + "\\fBferry\\fR(1)\n";
}

}  // namespace ferry::cli
