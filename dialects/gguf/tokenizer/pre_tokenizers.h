// The names that GGUF has for pre-tokenizers (tokenizer.ggml.pre), found as llama.cpp's converter
// finds them: by the ids that a tokenizer gives to one fixed text. The text and the digests are
// those of convert_hf_to_gguf.py, llama.cpp 0.7.0.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "core/result.h"
#include "text/tokenizer/tokenizer.h"

namespace ferry::text {

// Whether GGUF has a pre-tokenizer of this name.
bool is_gguf_pre_tokenizer(std::string_view name);

// Returns the SHA-256, in hexadecimal digits, of the ids of the fixed text, written "[1, 2, 3]".
// The special tokens that the tokenizer sets around a text are among the ids.
Result<std::string> gguf_pre_tokenizer_digest(Tokenizer& tokenizer);

// Returns nullopt for digests that the converter does not know.
std::optional<std::string> gguf_pre_tokenizer_of(std::string_view digest);

}  // namespace ferry::text
