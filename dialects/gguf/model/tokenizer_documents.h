// Makes tokenizer.json of the lists that a GGUF file has, for the tokenizers of encoders: WordPiece
// (tokenizer.ggml.model "bert") and Unigram ("t5").
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace ferry::converters {

// The tokens that stand before and behind every text, by their texts.
struct GgufTextFrame {
  std::string first, last;
  int64_t first_id = 0, last_id = 0;
};

// Returns the tokens as WordPiece spells them. Files have U+2581 before tokens that begin a word,
// and nothing before those that continue one, which WordPiece spells "##". `keeps` tells tokens
// that are spelled alike, such as [CLS].
std::vector<std::string> word_piece_tokens(const std::vector<std::string>& tokens,
                                           const std::vector<bool>& keeps);

// No key says whether texts are put into lower case. They are, unless some token has a capital.
nlohmann::json word_piece_document(const std::vector<std::string>& tokens,
                                   const nlohmann::json& added, const std::string& unknown,
                                   const GgufTextFrame& frame, bool lower);

// `charsmap` are the bytes of the normaliser of SentencePiece; may be empty.
nlohmann::json unigram_document(const std::vector<std::string>& tokens,
                                const std::vector<double>& scores, const nlohmann::json& added,
                                size_t unknown, std::string_view charsmap,
                                const nlohmann::json& post_processor);

}  // namespace ferry::converters
