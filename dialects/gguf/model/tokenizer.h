// tokenizer.json and tokenizer_config.json of a GGUF file, from the tokenizer.ggml keys of its
// metadata, in the forms that the tokenizers library reads.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "core/result.h"

namespace ferry::converters {

struct GgufTokenizer {
  std::string tokenizer;         // text of tokenizer.json, empty where the metadata do not tell it
  std::string tokenizer_config;  // with the chat template; empty with the former
  std::string missing;           // then why, in one line
};

// Byte-level BPE (tokenizer.ggml.model "gpt2") for the pre-tokenizers that are known by name, and
// SentencePiece BPE ("llama") where the scores rank the tokens; its merges are then the ways to put
// a token together from two others, by falling score. Trailing unused tokens that no key names are
// left out. kBadInput for keys of the wrong kind, `name` begins the messages.
Result<GgufTokenizer> make_gguf_tokenizer(const nlohmann::json& metadata, const std::string& name);

}  // namespace ferry::converters
