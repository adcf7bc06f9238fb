// Reads which tokens end an answer from the files of a checkpoint or bundle.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/result.h"

namespace ferry::text {

// Returns eos_token_id of generation_config.json, a number or a list. If it is absent, returns the
// id that the tokenizer gives eos_token of tokenizer_config.json. If that file has no
// added_tokens_decoder, special_tokens_map.json takes precedence over it. Returns no ids if no file
// states a token. kBadInput for values of other types, and for an eos_token that the tokenizer does
// not know.
Result<std::vector<int64_t>> end_tokens(const std::string& directory);

}  // namespace ferry::text
