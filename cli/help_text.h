// The texts of --help, and the pages for man(1).
#pragma once

#include <string>
#include <vector>

#include "cli/line_spec.h"

namespace ferry::cli {

// The help of the program: its verbs and the options of all.
std::string help_text(const LineSpec& line);
// The help of a verb: usage, options in groups, examples, exit codes.
std::string help_text(const LineSpec& line, const VerbSpec& verb);

// "ferry convert SRC [-o OUT] [OPTIONS]", for people.
std::string usage(const VerbSpec& verb);

// "does this" -> "Does this."
std::string sentence(std::string text);

// The exit codes that every verb has (docs/command_line.md).
std::vector<ExitCode> common_exit_codes();

// The name of a verb's man page: "ferry-convert", "ferry-batch-run". nullptr stands for the
// program.
std::string man_name(const VerbSpec* verb);
// The page, as roff.
std::string man_page(const LineSpec& line, const VerbSpec* verb);

}  // namespace ferry::cli
