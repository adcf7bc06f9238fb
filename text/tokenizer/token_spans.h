// The bytes of a text that its tokens stand for.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "text/tokenizer/token_model.h"
#include "text/tokenizer/tokenizer_json.h"
#include "text/tokenizer/tokenizer_steps.h"

namespace ferry::text {

// Returns, for each byte of the normalized `text`, the bytes of it that the normalizer made this
// one of. Characters are normalized one by one, and where they do not join to `normal`, together
// with the marks behind them. kUnsupported where that does not explain `normal` either.
Result<std::vector<TextRange>> align_normalized(const Normalizer& normalizer, std::string_view text,
                                                std::string_view normal);

// How the model of a tokenizer writes pieces of words.
class TokenSpelling {
 public:
  static TokenSpelling make(const TokenizerDocument& document, bool byte_level);

  // Whether tokens inside of words are written otherwise than those that begin one.
  bool marks_subwords() const { return !prefix_.empty(); }
  // Returns the id of the token for unknown text, if there is one.
  std::optional<int64_t> unknown(const Vocabulary& vocabulary) const;

  // Appends the bytes of `word` that each of its `ids` stands for. Bytes that no token spells
  // belong to the unknown token before them. kUnsupported where tokens do not spell the word.
  Status find(std::string_view word, std::span<const int64_t> ids, const Vocabulary& vocabulary,
              std::vector<TextRange>& spans) const;

 private:
  // Returns the bytes that a token writes.
  std::string written(std::string_view token, bool first) const;

  bool byte_level_ = false;
  std::string unknown_;
  std::optional<int64_t> unknown_id_;
  std::string prefix_, suffix_;  // of tokens that continue a word, and of those that end it
};

}  // namespace ferry::text
