// What --help prints.
#pragma once

#include <string>
#include <vector>

#include "cli/line_spec.h"

namespace ferry::cli {

// Of the program: its verbs and the options of all.
std::string help_text(const LineSpec& line);
// Of a verb: usage, options in groups, examples, exit codes.
std::string help_text(const LineSpec& line, const VerbSpec& verb);

// "ferry convert SRC [-o OUT] [OPTIONS]", for people.
std::string usage(const VerbSpec& verb);

// "does this" -> "Does this."
std::string sentence(std::string text);

// What the codes mean for every verb (docs/command_line.md).
std::vector<ExitCode> common_exit_codes();

}  // namespace ferry::cli
