// Pages for man(1), as roff.
#pragma once

#include <string>

#include "cli/line_spec.h"

namespace ferry::cli {

// "ferry", "ferry-convert", "ferry-batch-run": the page's name. nullptr: that of the program.
std::string man_name(const VerbSpec* verb);
std::string man_page(const LineSpec& line, const VerbSpec* verb);

}  // namespace ferry::cli
