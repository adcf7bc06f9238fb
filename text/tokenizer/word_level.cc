#include "text/tokenizer/word_level.h"

#include <fmt/format.h>

#include "core/text.h"

namespace ferry::text {

Result<WordLevel> WordLevel::make(const TokenizerDocument& document, const Vocabulary& vocabulary) {
  WordLevel model;
  model.vocabulary_ = &vocabulary;
  model.where_ = document.name + ": model";
  StepFields fields = FERRY_TRY(StepFields::of(document.root.at("model"), model.where_));
  fields.find("type");
  fields.find("vocab");
  if (!document.has_vocab) return fields.bad("'vocab' is missing");
  model.unk_ = vocabulary.find(FERRY_TRY(fields.text("unk_token")));
  FERRY_RETURN_IF_ERROR(fields.finish());
  return model;
}

Status WordLevel::encode(std::string_view word, std::vector<int64_t>& ids) {
  if (word.empty()) return {};
  const auto known = vocabulary_->find(word);
  if (!known && !unk_) {
    return bad_input(fmt::format("{}: {} is no token, and 'unk_token' is not in the vocabulary",
                                 where_, quoted(word, 60)));
  }
  ids.push_back(known ? *known : *unk_);
  return {};
}

}  // namespace ferry::text
