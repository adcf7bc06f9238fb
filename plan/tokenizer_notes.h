// A conversion reads two things from the tokenizer of its checkpoint: notes on what it will not do
// in the bundle, and the ids of tokens.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "packer/bundle_plan.h"

namespace ferry::plan {

// Lines for the user; none where `copied` has no tokenizer, or one that loads and whose ids a
// model of `vocab_size` takes. Not an error: a bundle serves without text too.
std::vector<std::string> tokenizer_notes(const std::vector<packer::CopiedFile>& copied,
                                         int64_t vocab_size);

// The id of a token; nullopt where `copied` has no tokenizer that loads, or one without this token.
std::optional<int64_t> token_id_in(const std::vector<packer::CopiedFile>& copied,
                                   std::string_view token);

}  // namespace ferry::plan
