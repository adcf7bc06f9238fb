// Reads files of token ids, such as those of the options --calibrate and --perplexity.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/result.h"

namespace ferry::proof {

using Prompts = std::vector<std::vector<int64_t>>;

// Reads a text file with one prompt per line: token ids separated by commas or blanks, optionally
// in brackets, as `ferry tokenize` prints them. Empty lines are ignored. kBadInput, with the number
// of the line, for anything else.
Result<Prompts> read_prompts(const std::string& path);

}  // namespace ferry::proof
