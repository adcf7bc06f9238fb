// TokenModel maps a word, which the pre-tokenizer has found, to token ids.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "text/tokenizer/tokenizer_json.h"
#include "text/tokenizer/vocabulary.h"

namespace ferry::text {

// Models are not thread-safe.
class TokenModel {
 public:
  // Reads the field `model`: BPE, Unigram, WordPiece or WordLevel. `vocabulary` must outlive the
  // model. With `byte_level`, words are bytes and the vocabulary spells them in the byte-level
  // alphabet. kUnsupported for other models and for unsupported options, by name.
  static Result<std::unique_ptr<TokenModel>> make(const TokenizerDocument& document,
                                                  const Vocabulary& vocabulary, bool byte_level);
  virtual ~TokenModel() = default;

  // Appends the ids of `word`, which is valid UTF-8 unless the model is byte-level. kBadInput if
  // the model needs an unknown token and has none.
  virtual Status encode(std::string_view word, std::vector<int64_t>& ids) = 0;
};

}  // namespace ferry::text
