// Writes the texts of --help and the pages for man(1).
#pragma once

#include <string>
#include <vector>

#include "cli/line_spec.h"

namespace ferry::cli {

// Returns the help of the program: its verbs and the options that all verbs have.
std::string help_text(const LineSpec& line);
// Returns the help of a verb: usage, options in groups, examples and exit codes.
std::string help_text(const LineSpec& line, const VerbSpec& verb);

// Returns a line such as "ferry convert SRC [-o OUT] [OPTIONS]".
std::string usage(const VerbSpec& verb);

// Returns "Does this." for "does this".
std::string sentence(std::string text);

// Returns the exit codes that every verb has (docs/command_line.md).
std::vector<ExitCode> common_exit_codes();
// Returns a line for each verb that may come after `verb`, or of all verbs for nullptr; then with
// their tasks, and with the examples of the program.
std::vector<std::string> verb_overview(const LineSpec& line, const VerbSpec* verb);

// Returns the name of a verb's man page, such as "ferry-batch-run"; of the program's for nullptr.
std::string man_name(const VerbSpec* verb);
// Returns the page in roff. nullptr means the page of the program.
std::string man_page(const LineSpec& line, const VerbSpec* verb);

}  // namespace ferry::cli
