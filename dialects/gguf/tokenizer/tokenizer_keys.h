// gguf_tokenizer_keys() makes the keys of a GGUF file that describe its tokenizer, as llama.cpp's
// converter writes them for a checkpoint in the layout of Hugging Face.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/gguf_key_value.h"
#include "core/result.h"
#include "text/read_file.h"

namespace ferry::text {

struct GgufTokenizerOptions {
  std::string architecture;  // general.architecture
  int64_t vocab_size = 0;    // rows of the embedding
  int64_t token_types = 0;   // of encoders: the types that a token may have
  std::string pre = {};      // name of the pre-tokenizer; empty: found by the ids of a fixed text
};

struct GgufTokenizerKeys {
  std::vector<GgufKeyValue> keys;  // in file order
  std::vector<std::string> notes;  // differences between a reader of the file and the source
};

// `read` gives the files of the checkpoint. Without tokenizer.json and tokenizer.model the only key
// is tokenizer.ggml.model "none", but for encoders, which state the types of tokens and may have
// vocab.txt. kUnsupported, with the digest, where the converter knows no name
// for the pre-tokenizer, and for tokenizers that GGUF has no model for.
Result<GgufTokenizerKeys> gguf_tokenizer_keys(const ReadFile& read,
                                              const GgufTokenizerOptions& options);

}  // namespace ferry::text
