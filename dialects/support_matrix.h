// support_matrix() makes a table in Markdown: which model families Ferry reads and writes in which
// dialect. The families themselves say so; docs/families.md is a copy of the table.
#pragma once

#include <string>

namespace ferry::converters {

// The table has a row for each family, sorted by name, and ends with a newline.
std::string support_matrix();

}  // namespace ferry::converters
