// Reads ranks of tiktoken: a file with a token in base64 and its rank on each line. The rank is the
// id and the order of merging. The file contains neither the word-splitting pattern nor the special
// tokens.
#pragma once

#include <string>
#include <string_view>

#include "core/result.h"
#include "text/tokenizer/tokenizer_json.h"
#include "text/tokenizer/tokenizer_settings.h"

namespace ferry::text {

// Returns whether `bytes` begin like a file of ranks: base64, a blank, a number, a newline.
bool is_tiktoken(std::string_view bytes);

// The source of the splitting pattern and of the special tokens is found in this order: the class
// QWenTokenizer or the file name qwen.tiktoken; the class TikTokenTokenizer (Kimi K2); Llama 3 if
// config.json has model_type llama; the encodings o200k_base and cl100k_base, by the name of the
// file. For these encodings added_tokens_decoder of the settings takes precedence. kUnsupported if
// nothing determines the source. kBadInput for other lines, and for tokens or ranks that occur
// twice. `file` is the name of the file. `name` begins error messages.
Result<TokenizerDocument> tiktoken_document(std::string_view bytes,
                                            const TokenizerSettings& settings,
                                            const std::string& file, const std::string& name);

}  // namespace ferry::text
