// The verbs that the program lists in its own help.
#pragma once

#include <string>
#include <vector>

namespace ferry {

// Returns the first words of the lines below a heading of a help text.
std::vector<std::string> help_entries(const std::string& help, const std::string& heading);

// Returns every verb with the words before it, as {"batch", "run"}. Verbs that have verbs below
// them are included.
std::vector<std::vector<std::string>> all_verbs(const std::vector<std::string>& before = {});

// Joins the words: "batch run".
std::string text_of(const std::vector<std::string>& words);

}  // namespace ferry
