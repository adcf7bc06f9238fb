// meant_lines() turns a line that was written for another tool into lines of Ferry.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "cli/line_spec.h"

namespace ferry::cli {

// `words` is a line that nobody declared, without the program's name, such as
// {"llama-cli", "-m", "m.gguf", "-n", "8"}. Returns lines for people: "did you mean: ferry run
// m.gguf --max-new 8 ...", a further command where the first one does half of the work, and what is
// left out. Every command is one that `accepts` accepts. Returns nothing if a word is unknown, or
// if no other tool has such a line.
std::vector<std::string> meant_lines(
    const std::vector<std::string>& words, const LineSpec& spec,
    const std::function<bool(const std::vector<std::string>&)>& accepts);

}  // namespace ferry::cli
