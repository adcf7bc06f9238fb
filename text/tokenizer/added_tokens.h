// AddedTokens are tokens that are matched literally, such as control tokens. A text is split at
// them first, and only the parts between them are encoded by the model.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/result.h"
#include "text/tokenizer/token_model.h"
#include "text/tokenizer/tokenizer_steps.h"

namespace ferry::text {

// TokenTrie finds the longest of a set of texts at a position. The sorted texts are narrowed byte
// by byte, which needs no memory beyond them.
class TokenTrie {
 public:
  // The texts are not empty, and each has a number. The first of equal texts counts.
  explicit TokenTrie(std::vector<std::pair<std::string, uint32_t>> texts = {});

  struct Match {
    size_t begin, end;
    uint32_t number;
  };
  // Returns the first position at or after `from` where a text stands, and the longest text there.
  std::optional<Match> find(std::string_view text, size_t from) const;

 private:
  std::optional<Match> longest_at(std::string_view text, size_t at) const;

  std::vector<std::pair<std::string, uint32_t>> texts_;  // sorted
  std::array<uint32_t, 257> first_{};  // the index of the first text, by first byte
};

struct AddedToken {
  std::string content;
  std::string text;  // decoded text: the content, or its normalized form if `normalized`
  uint32_t id = 0;
  bool special = false;
  bool skipped = false;      // left out of decoded text on request, because `text` is special
  bool normalized = false;   // matched in normalized text, and decoded in that form
  bool single_word = false;  // does not match inside a word
  bool lstrip = false, rstrip = false;  // whether white space on that side also matches
};

class AddedTokens {
 public:
  // Reads the field `added_tokens`. kBadInput for ids that differ from those of the vocabulary.
  // Contents that the vocabulary lacks must have the next free ids.
  static Result<AddedTokens> make(const TokenizerDocument& document, const Vocabulary& vocabulary,
                                  const Normalizer& normalizer);

  // A part of a text: a token, or the text between tokens if `token` is nullptr.
  struct Part {
    const AddedToken* token = nullptr;
    size_t begin = 0, end = 0;
  };
  // Cuts `text` at the tokens that are `normalized` or at those that are not, from left to right.
  void cut(std::string_view text, bool normalized, std::vector<Part>& parts) const;

  // Returns nullptr for ids and contents that are not added tokens.
  const AddedToken* find(int64_t id) const;
  const AddedToken* find(std::string_view content) const;
  const std::vector<AddedToken>& all() const { return tokens_; }

 private:
  std::vector<AddedToken> tokens_;
  std::map<int64_t, size_t> by_id_;
  std::map<std::string, size_t, std::less<>> by_content_;
  TokenTrie plain_, normalized_;
};

}  // namespace ferry::text
