// support_matrix(): which model families Ferry reads and writes in which dialect, as a table in
// Markdown. It is made of what the families state; docs/families.md is a copy of it.
#pragma once

#include <string>

namespace ferry::converters {

// A row for each family, sorted by name; ends with a newline.
std::string support_matrix();

}  // namespace ferry::converters
