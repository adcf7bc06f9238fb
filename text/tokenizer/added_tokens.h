// AddedTokens: tokens that stand in a text as they are, beside the model's vocabulary: control
// tokens and others. A text is first cut at them, and only the rest goes through the model.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "text/tokenizer/normalizer.h"
#include "text/tokenizer/token_trie.h"
#include "text/tokenizer/vocabulary.h"

namespace ferry::text {

struct AddedToken {
  std::string content;
  std::string text;  // in decoded text: the content, normalized if the token is
  uint32_t id = 0;
  bool special = false;
  bool skipped = false;      // left out of decoded text on request: `text` is a special content
  bool normalized = false;   // looked for in normalized text, and written as it would be there
  bool single_word = false;  // not within a word
  bool lstrip = false, rstrip = false;  // takes white space on that side along
};

class AddedTokens {
 public:
  // From the field `added_tokens`. kBadInput for ids that are not those of the vocabulary, or, for
  // contents that it does not have, not the next ones behind it.
  static Result<AddedTokens> make(const TokenizerDocument& document, const Vocabulary& vocabulary,
                                  const Normalizer& normalizer);

  // Of a text: a token, or a stretch between tokens where `token` is null.
  struct Part {
    const AddedToken* token = nullptr;
    size_t begin = 0, end = 0;
  };
  // Cuts `text` at the tokens that are `normalized` or at those that are not, from left to right.
  void cut(std::string_view text, bool normalized, std::vector<Part>& parts) const;

  // nullptr for other ids and contents.
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
