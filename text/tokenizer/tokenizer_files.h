// The tokenizer of a checkpoint or a bundle, from whichever of its files has it.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "core/result.h"
#include "text/read_file.h"
#include "text/tokenizer/tokenizer.h"

namespace ferry::text {

// The file that the tokenizer of a folder comes from: tokenizer.json, or the first of the files of
// SentencePiece and tiktoken, vocab.json, vocab.txt. Empty where `has` knows none of them.
std::string_view find_tokenizer_file(const std::function<bool(std::string_view)>& has);

// The tokenizer of `directory`, whose files `read` gives. Where there is no tokenizer.json it is
// made of a SentencePiece model, of tiktoken ranks or of a vocabulary, with what
// tokenizer_config.json, special_tokens_map.json, added_tokens.json and config.json say. kIo where
// there is no such file.
Result<Tokenizer> load_tokenizer(const std::string& directory, const ReadFile& read);
// Loads the tokenizer of a directory, or of one of these files; the others are looked for beside
// it.
Result<Tokenizer> load_tokenizer(const std::string& path);

}  // namespace ferry::text
