// Reads vocabularies without a tokenizer.json: vocab.txt of WordPiece tokenizers, and vocab.json
// with merges.txt of byte-level BPE tokenizers. The steps around the vocabulary follow from the
// tokenizer class.
#pragma once

#include <string>
#include <string_view>

#include "core/result.h"
#include "text/tokenizer/tokenizer_json.h"
#include "text/tokenizer/tokenizer_settings.h"

namespace ferry::text {

inline constexpr std::string_view kWordPieceFile = "vocab.txt";
inline constexpr std::string_view kBpeFile = "vocab.json";
inline constexpr std::string_view kMergesFile = "merges.txt";

// `lines` has one token on each line, and the line number is the id. The class is BertTokenizer or
// DistilBertTokenizer, or follows from model_type of config.json. kUnsupported for other classes.
// `name` begins error messages.
Result<TokenizerDocument> word_piece_document(std::string_view lines,
                                              const TokenizerSettings& settings,
                                              const std::string& name);

// `vocab` is {token: id}. `merges` has two tokens on each line, ordered by rank; lines that begin
// with "#version" are ignored. The class is GPT2Tokenizer, CodeGenTokenizer, GPTNeoXTokenizer,
// Qwen2Tokenizer or RobertaTokenizer, or follows from model_type. kUnsupported for other classes,
// kBadInput for merges of texts that are no tokens.
Result<TokenizerDocument> byte_bpe_document(std::string_view vocab, std::string_view merges,
                                            const TokenizerSettings& settings,
                                            const std::string& name);

}  // namespace ferry::text
