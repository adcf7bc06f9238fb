// The blank of models that give a label for each row of a sound (CTC), and the text of labels, as
// ParakeetProcessor of transformers 5.23 has them.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/result.h"
#include "text/read_file.h"
#include "text/tokenizer/tokenizer.h"

namespace ferry::text {

// Returns the id of pad_token, which stands for no text: that of tokenizer_config.json, or of
// special_tokens_map.json where that takes precedence. kBadInput if there is none, or if
// `tokenizer` does not have it. kUnsupported, by name, for files with which the reference does not
// take equal neighbours for one label, and for those with which it changes the spaces of the text.
// `directory` begins the messages.
Result<int64_t> blank_token(const Tokenizer& tokenizer, const std::string& directory,
                            const ReadFile& read);
Result<int64_t> blank_token(const Tokenizer& tokenizer, const std::string& directory);

// Returns one label for each run of equal ones, without the blanks.
std::vector<int64_t> collapsed(std::span<const int64_t> labels, int64_t blank);

}  // namespace ferry::text
