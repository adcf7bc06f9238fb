// completion_script() writes scripts that complete the command line in shells.
#pragma once

#include <string>

#include "cli/line_spec.h"

namespace ferry::cli {

std::string bash_completion(const LineSpec& line);
std::string zsh_completion(const LineSpec& line);
std::string fish_completion(const LineSpec& line);

}  // namespace ferry::cli
