// The vocabularies of encoders of BERT's kind in a GGUF file, as llama.cpp's converter makes them.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "core/gguf_key_value.h"
#include "core/result.h"
#include "dialects/gguf/tokenizer/vocabulary.h"
#include "text/tokenizer/sentencepiece_model.h"
#include "text/tokenizer/tokenizer.h"
#include "text/tokenizer/tokenizer_json.h"

namespace ferry::text {

// Whether the model of the document has this type: "WordPiece", "Unigram", ...
bool has_token_model(const TokenizerDocument& document, std::string_view type);

// Makes the vocabulary "bert" of a WordPiece: tokens that begin a word have U+2581 before them, and
// those that continue one stand without "##". kUnsupported where a token has an id beyond the size.
Result<GgufVocabulary> word_piece_vocabulary(const TokenizerDocument& document,
                                             Tokenizer& tokenizer,
                                             const GgufVocabularySource& source);

// Makes the vocabulary "t5" of a SentencePiece model of XLM-RoBERTa, whose first tokens have other
// ids than its pieces: <s>, <pad>, </s>, <unk>, and then the pieces behind the first three.
// kUnsupported for a model that is no Unigram or has more pieces than `size`; `name` begins the
// message.
Result<GgufVocabulary> unigram_vocabulary(const SentencePieceModel& model, int64_t size,
                                          const std::string& name);

// Makes the vocabulary "t5" of a SentencePiece model of T5, whose pieces have the ids of the
// tokens. `added` is the object of added_tokens.json, or null. kUnsupported as above; kBadInput for
// an `added` that is no object of ids.
Result<GgufVocabulary> pieces_vocabulary(const SentencePieceModel& model,
                                         const nlohmann::json& added, int64_t size,
                                         const std::string& name);

// Returns bytes as the value of a key: an array of u8.
GgufStoredValue gguf_byte_array(std::string_view bytes);

}  // namespace ferry::text
