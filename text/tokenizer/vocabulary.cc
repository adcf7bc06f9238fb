#include "text/tokenizer/vocabulary.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/text.h"

namespace ferry::text {

Result<Vocabulary> Vocabulary::make(const TokenizerDocument& document) {
  Vocabulary v;
  uint32_t largest = 0;
  size_t bytes = 0;
  for (const auto& [slice, id] : document.vocab) {
    largest = std::max(largest, id);
    bytes += slice.size;
  }
  if (!document.vocab.empty()) v.tokens_.resize(size_t{largest} + 1);
  v.ids_.reserve(document.vocab.size());
  v.strings_ = std::make_unique<std::string>();
  v.strings_->reserve(bytes);
  for (const auto& [slice, id] : document.vocab) {
    const size_t offset = v.strings_->size();
    *v.strings_ += document.text(slice);
    const std::string_view text = std::string_view(*v.strings_).substr(offset);
    if (!v.ids_.emplace(text, id).second) {
      return bad_input(fmt::format("{}: model.vocab: the token {} is there twice", document.name,
                                   quoted(text, 60)));
    }
    if (v.tokens_[id].data() != nullptr) {
      return bad_input(fmt::format("{}: model.vocab: {} and {} have the id {}", document.name,
                                   quoted(v.tokens_[id], 60), quoted(text, 60), id));
    }
    v.tokens_[id] = text;
  }
  return v;
}

}  // namespace ferry::text
