// TokenModel maps a word, which the pre-tokenizer has found, to token ids.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/result.h"
#include "text/tokenizer/hashing.h"
#include "text/tokenizer/tokenizer_json.h"

namespace ferry::text {

// Vocabulary holds the tokens of a model and their ids, without the added tokens.
class Vocabulary {
 public:
  // kBadInput if a token or an id occurs twice.
  static Result<Vocabulary> make(const TokenizerDocument& document);

  std::optional<uint32_t> find(std::string_view token) const {
    const auto at = ids_.find(token);
    if (at == ids_.end()) return std::nullopt;
    return at->second;
  }
  // Returns nullopt for ids that the model does not have.
  std::optional<std::string_view> token(int64_t id) const {
    if (id < 0 || id >= static_cast<int64_t>(tokens_.size())) return std::nullopt;
    const std::string_view text = tokens_[static_cast<size_t>(id)];
    return text.data() == nullptr ? std::nullopt : std::optional(text);
  }
  size_t size() const { return ids_.size(); }
  // Returns the largest id plus one.
  int64_t id_bound() const { return static_cast<int64_t>(tokens_.size()); }

 private:
  std::unique_ptr<std::string> strings_;  // the memory of the views below
  std::vector<std::string_view> tokens_;  // by id; a null view if there is no such id
  std::unordered_map<std::string_view, uint32_t, TextHash> ids_;
};

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
