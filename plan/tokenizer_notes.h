// A conversion loads the tokenizer of its checkpoint for the ids of tokens, for texts that it
// calibrates with, and for notes on what the tokenizer of the bundle will not do.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "packer/bundle_plan.h"
#include "text/chat_template/chat_template.h"
#include "text/read_file.h"
#include "text/tokenizer/tokenizer.h"

namespace ferry::plan {

// Returns lines for the user; empty if `copied` has no tokenizer, or if the tokenizer loads and a
// model of `vocab_size` accepts all its ids. Problems are not an error, because a bundle can be
// used without text.
std::vector<std::string> tokenizer_notes(const std::vector<packer::CopiedFile>& copied,
                                         int64_t vocab_size);

// Reads the files that the bundle will have, which must outlive the function; a file that it will
// not have is empty.
text::ReadFile reader_of(const std::vector<packer::CopiedFile>& copied);
// Loads the tokenizer that the bundle will have. kUsage if `copied` has none.
Result<text::Tokenizer> tokenizer_in(const std::vector<packer::CopiedFile>& copied);
// Loads the chat template that the bundle will have. kUsage if `copied` has no tokenizer, and
// errors as for ChatTemplate::load().
Result<text::ChatTemplate> chat_template_in(const std::vector<packer::CopiedFile>& copied);

// Returns the id of a token; nullopt if `copied` has no tokenizer that loads, or if the tokenizer
// does not have the token.
std::optional<int64_t> token_id_in(const std::vector<packer::CopiedFile>& copied,
                                   std::string_view token);

// Checks that the tokenizer that the bundle will have, if any, makes text of the labels of a sound
// as the reference does, and that its blank is `blank`, the one of the model. Errors are those of
// text::blank_token(); kUnsupported for another blank.
Status check_blank(const std::vector<packer::CopiedFile>& copied, int64_t blank);

}  // namespace ferry::plan
