// Ranks of tiktoken: a file with a token in base64 and its rank on each line. The rank is the id
// and the order of merging. Which words a text is split into, and which special tokens there are,
// is not in the file.
#pragma once

#include <string>
#include <string_view>

#include "core/result.h"
#include "text/tokenizer/tokenizer_json.h"
#include "text/tokenizer/tokenizer_settings.h"

namespace ferry::text {

// Whether it begins as such a file does: base64, a blank, a number, a newline.
bool is_tiktoken(std::string_view bytes);

// The splitting pattern and special tokens are those of: the class QWenTokenizer, or the file name
// qwen.tiktoken; the class TikTokenTokenizer (Kimi K2); Llama 3 where config.json says model_type
// llama; the encodings o200k_base and cl100k_base, by the name of the file. added_tokens_decoder
// of the settings goes before the latter. kUnsupported where nothing says it. kBadInput for other
// lines than these, and tokens or ranks that are there twice. `file` is the name of the file,
// `name` begins the messages.
Result<TokenizerDocument> tiktoken_document(std::string_view bytes,
                                            const TokenizerSettings& settings,
                                            const std::string& file, const std::string& name);

}  // namespace ferry::text
