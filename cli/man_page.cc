#include "cli/man_page.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <string_view>
#include <vector>

#include "cli/help_text.h"
#include "core/version.h"

namespace ferry::cli {
namespace {

// Text that means itself: roff has requests, escapes and typographic hyphens and quotes.
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
  return option.is_flag() ? tag : tag + " " + italic(option.value);
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

// Options that stand together have the group as their title.
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

// Names of options are never hyphenated.
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
