// WordPiece finds the longest token at the beginning of a word, then the longest token that
// continues it, and so on, as the WordPiece model of tokenizer.json describes it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer/prefix_trie.h"
#include "text/tokenizer/token_model.h"

namespace ferry::text {

class WordPiece final : public TokenModel {
 public:
  // `vocabulary` must outlive the model.
  static Result<WordPiece> make(const TokenizerDocument& document, const Vocabulary& vocabulary);

  // A word that is too long, or that tokens do not cover, is one unknown token.
  Status encode(std::string_view word, std::vector<int64_t>& ids) override;

 private:
  PrefixTrie trie_;
  uint32_t continuing_ = PrefixTrie::kNone;  // the node of the prefix of continuing tokens
  size_t max_characters_ = 0;
  uint32_t unk_ = 0;
};

}  // namespace ferry::text
