// Files of token ids, as --calibrate and --perplexity take them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/result.h"

namespace ferry::proof {

using Prompts = std::vector<std::vector<int64_t>>;

// A text file: one prompt in each line, its token ids separated by commas or blanks; they may stand
// in brackets, as `ferry tokenize` prints them. Empty lines mean nothing. kBadInput, with the
// number of the line, for anything else.
Result<Prompts> read_prompts(const std::string& path);

}  // namespace ferry::proof
