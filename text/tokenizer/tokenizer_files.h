// Loads the tokenizer of a checkpoint or a bundle from the file that has it.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "core/result.h"
#include "text/read_file.h"
#include "text/tokenizer/tokenizer.h"

namespace ferry::text {

// Returns the file from which the tokenizer of a folder is read: tokenizer.json, or the first of
// the files of SentencePiece and tiktoken, vocab.json, vocab.txt, tekken.json. Returns an empty
// name if `has` knows none of them.
std::string_view find_tokenizer_file(const std::function<bool(std::string_view)>& has);

// Loads the tokenizer of `directory`, whose files `read` returns. If there is no tokenizer.json, it
// is made of a SentencePiece model, of tiktoken ranks or of a vocabulary, with the settings of
// tokenizer_config.json, special_tokens_map.json, added_tokens.json and config.json. kIo if there
// is no such file.
Result<Tokenizer> load_tokenizer(const std::string& directory, const ReadFile& read);
// Loads the tokenizer of a directory, or of one of its tokenizer files. The other files are read
// from the same directory.
Result<Tokenizer> load_tokenizer(const std::string& path);
// The limit of a tekken.json, twice the size of the largest known file. Reading takes up to thirty
// times as much memory.
inline constexpr uint64_t kMaxTekkenFile = uint64_t{32} << 20;
// Returns the tokenizer of the contents of a tekken.json. `name` begins error messages.
Result<Tokenizer> tekken_tokenizer(std::string_view bytes, const std::string& name);

}  // namespace ferry::text
