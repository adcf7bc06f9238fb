// Ranks are tokens of bytes in the order of merging, as tiktoken has them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/result.h"
#include "text/tokenizer/converted_documents.h"

namespace ferry::text {

struct Rank {
  std::string bytes;
  uint32_t rank = 0;  // the id of the token too
};

// Adds the tokens and their merges, in the order of their ranks. kBadInput for a token that is
// there twice.
Status add_ranks(const std::vector<Rank>& ranks, DocumentBuilder& out);
// Sets the steps of texts that `pattern` splits, and whose parts are merged by rank.
void set_rank_steps(const std::string& pattern, DocumentBuilder& out);

}  // namespace ferry::text
