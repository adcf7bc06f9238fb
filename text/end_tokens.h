// Which tokens end an answer, as the files beside a tokenizer say.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/result.h"

namespace ferry::text {

// eos_token_id of generation_config.json, a number or a list; where it has none, the id that
// the tokenizer gives eos_token of tokenizer_config.json; unless this has added_tokens_decoder,
// that of special_tokens_map.json goes before it. Empty where neither has one. kBadInput for values
// of other types, and for an eos_token that the tokenizer does not know.
Result<std::vector<int64_t>> end_tokens(const std::string& directory);

}  // namespace ferry::text
