// The lists of a GGUF vocabulary, one element for each token, as llama.cpp's converter makes them
// of a tokenizer.json or of a SentencePiece model.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "text/tokenizer/tokenizer.h"
#include "text/tokenizer/tokenizer_json.h"

namespace ferry::text {

// The pieces of a SentencePiece model (tokenizer.model): as much of its protobuf as the vocabulary
// of a GGUF file needs.
struct SentencePiece {
  enum Type : uint32_t {
    kNormal = 1,
    kUnknown = 2,
    kControl = 3,
    kUserDefined = 4,
    kUnused = 5,
    kByte = 6
  };
  std::string text;
  float score = 0;
  uint32_t type = kNormal;
};

// Returns the pieces in the order of their ids. kBadInput for bytes that are no SentencePiece
// model; `name` begins the messages.
Result<std::vector<SentencePiece>> read_sentence_pieces(std::string_view bytes,
                                                        const std::string& name);

struct GgufVocabulary {
  std::vector<std::string> tokens;
  std::vector<float> scores;  // for SentencePiece vocabularies only
  std::vector<int32_t> types;
};

// The inputs of every list. `tokenizer_config` may be null. Ids that no token has are padded up to
// `size`, the rows of the embedding.
struct GgufVocabularySource {
  const nlohmann::json& tokenizer_config;
  int64_t size;
};

// Whether the words of the document are spelled in the byte-level alphabet of GPT-2.
bool is_byte_level(const TokenizerDocument& document);
// Whether the document is SentencePiece BPE in the form of the tokenizers library.
bool has_byte_fallback(const TokenizerDocument& document);

// Makes the vocabulary "gpt2": byte-level BPE. kUnsupported where a token has an id beyond the
// size.
Result<GgufVocabulary> byte_level_vocabulary(const TokenizerDocument& document,
                                             Tokenizer& tokenizer,
                                             const GgufVocabularySource& source);
// Returns the merges by rank, "a b" each.
std::vector<std::string> byte_level_merges(const TokenizerDocument& document);

// Makes the vocabulary "llama" without a SentencePiece model. The converter gives every token one
// score.
Result<GgufVocabulary> unscored_vocabulary(const TokenizerDocument& document,
                                           const GgufVocabularySource& source);

// How added tokens replace pieces.
enum class AddedTokenRule {
  kByName,    // those of tokenizer_config.json; a name such as <|end|> makes a control token too
  kAsStated,  // those of tokenizer.json as well; control tokens are those that say so
};
// Makes the vocabulary "llama". `added_tokens` is added_tokens.json or null, `document` may be
// nullptr.
Result<GgufVocabulary> sentence_piece_vocabulary(const std::vector<SentencePiece>& pieces,
                                                 const nlohmann::json& added_tokens,
                                                 const TokenizerDocument* document,
                                                 AddedTokenRule rule,
                                                 const GgufVocabularySource& source);

}  // namespace ferry::text
