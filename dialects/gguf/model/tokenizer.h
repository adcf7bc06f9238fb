// Makes tokenizer.json and tokenizer_config.json of the tokenizer.ggml keys in the metadata of a
// GGUF file, in the forms that the tokenizers library reads.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "core/result.h"

namespace ferry::converters {

struct GgufTokenizer {
  std::string tokenizer;  // text of tokenizer.json, empty where the metadata do not determine it
  std::string tokenizer_config;  // with the chat template; empty if `tokenizer` is
  std::string missing;           // the reason for an empty `tokenizer`, in one line
};

// Supports byte-level BPE (tokenizer.ggml.model "gpt2") for the pre-tokenizers that are known by
// name, and SentencePiece BPE ("llama") where the scores rank the tokens. The merges of
// SentencePiece are the ways to put a token together from two others, by falling score. Trailing
// unused tokens that no key names are left out. kBadInput for keys of the wrong kind; `name` begins
// the messages.
Result<GgufTokenizer> make_gguf_tokenizer(const nlohmann::json& metadata, const std::string& name);

}  // namespace ferry::converters
