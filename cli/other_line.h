// translate_line() reads a line of another tool by the tables of other_names.h, and says the same
// as lines of Ferry.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/line_spec.h"

namespace ferry::cli {

// Words of lines without the program's name, such as {"run", "m.gguf", "--max-new", "8"}.
struct MeantLine {
  std::vector<std::vector<std::string>> commands = {};
  std::vector<std::string> left_out = {};  // words that have no equivalent
  std::vector<std::string> notes = {};     // sentences for the user
};

// Returns nullopt if a word of the line is unknown. The commands may still be none of Ferry's.
std::optional<MeantLine> translate_line(const std::vector<std::string>& words,
                                        const LineSpec& spec);

}  // namespace ferry::cli
