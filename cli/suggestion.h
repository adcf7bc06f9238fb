// suggestion() guesses the name that a wrong name was meant to be.
#pragma once

#include <string>
#include <vector>

namespace ferry::cli {

// Returns a text such as " (did you mean --out?)"; empty if no name is similar. A name of another
// tool (other_names.h) means ours.
std::string suggestion(const std::string& given, const std::vector<std::string>& names);

}  // namespace ferry::cli
