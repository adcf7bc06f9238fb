// What `ferry convert` says about a conversion: the account of every key, the files, the memory.
#pragma once

#include <string>

#include "cli/convert_pipeline.h"

namespace ferry::cli {

// The document of `convert --json`, with or without --dry-run, also where keys do not fit.
std::string conversion_json(const Conversion& conversion);

// For people. With `table` every source key has a line: rule, targets, and what is done to it on the
// way; without it only those that are dropped.
std::string conversion_text(const Conversion& conversion, bool table);

}  // namespace ferry::cli
