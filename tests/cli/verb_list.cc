#include "tests/cli/verb_list.h"

#include <sstream>

#include "tests/cli/ferry_process.h"

namespace ferry {

using Line = std::vector<std::string>;

std::vector<std::string> help_entries(const std::string& help, const std::string& heading) {
  std::vector<std::string> words;
  std::istringstream lines(help);
  bool inside = false;
  for (std::string line; std::getline(lines, line);) {
    if (line.empty()) inside = false;
    if (inside && line.size() > 2 && line[2] != ' ') {
      words.push_back(line.substr(2, line.find(' ', 2) - 2));
    }
    if (line.starts_with(heading)) inside = true;
  }
  return words;
}

std::vector<Line> all_verbs(const Line& before) {
  Line help = before;
  help.push_back("--help");
  std::vector<Line> all;
  for (const std::string& name : help_entries(run_ferry(help).out, "Verbs:")) {
    Line words = before;
    words.push_back(name);
    all.push_back(words);
    for (const Line& below : all_verbs(words)) all.push_back(below);
  }
  return all;
}

std::string text_of(const Line& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : " ") + word;
  return text;
}

}  // namespace ferry
