// WordLevel maps a word to its token or to the unknown token, as the WordLevel model of
// tokenizer.json describes it.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer/token_model.h"

namespace ferry::text {

class WordLevel final : public TokenModel {
 public:
  // `vocabulary` must outlive the model.
  static Result<WordLevel> make(const TokenizerDocument& document, const Vocabulary& vocabulary);

  Status encode(std::string_view word, std::vector<int64_t>& ids) override;

 private:
  const Vocabulary* vocabulary_ = nullptr;
  std::string where_;
  std::optional<uint32_t> unk_;
};

}  // namespace ferry::text
