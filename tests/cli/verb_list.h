// The verbs that the program has, by its own help.
#pragma once

#include <string>
#include <vector>

namespace ferry {

// The words that begin the lines below a heading of a help.
std::vector<std::string> help_entries(const std::string& help, const std::string& heading);

// Every verb with the words before it: {"batch", "run"}, those that have verbs below them too.
std::vector<std::vector<std::string>> all_verbs(const std::vector<std::string>& before = {});

// "batch run"
std::string text_of(const std::vector<std::string>& words);

}  // namespace ferry
