// DocumentBuilder makes a TokenizerDocument, with the contents of a tokenizer.json, from the
// vocabulary files of other libraries.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "text/tokenizer/hashing.h"
#include "text/tokenizer/tokenizer_json.h"
#include "text/tokenizer/tokenizer_settings.h"

namespace ferry::text {

class DocumentBuilder {
 public:
  explicit DocumentBuilder(std::string name) { document_.name = std::move(name); }

  // Tokens with scores belong to a Unigram model, and are added in the order of their ids. All
  // tokens are different.
  void add_token(std::string_view text, uint32_t id);
  void add_scored(std::string_view text, double score);
  // `left` and `right` must be tokens of the vocabulary. kBadInput for more than kMaxMerges.
  Status add_merge(std::string_view left, std::string_view right);
  bool in_vocabulary(std::string_view text) const { return places_.contains(text); }
  // Returns the id of a token of the vocabulary or of an added token.
  std::optional<uint32_t> find(std::string_view text) const;

  // Adds a token that is matched literally. It takes the next free id if the vocabulary lacks it.
  // If it was added before, its flags are replaced.
  void add(const TokenSpec& token);
  bool is_added(std::string_view content) const { return added_ids_.contains(content); }

  // Returns a field of the document, such as "normalizer".
  nlohmann::json& field(const char* key) { return document_.root[key]; }
  // Sets a post-processor that puts these tokens before and behind a text. kBadInput if one of them
  // is not a token.
  Status enclose(const std::vector<std::string>& before, const std::vector<std::string>& behind);

  TokenizerDocument take();

 private:
  struct Hash {
    using is_transparent = void;
    size_t operator()(std::string_view text) const { return TextHash()(text); }
  };
  void keep(std::string_view text, uint32_t id);

  TokenizerDocument document_;
  // Maps a text to its index in the document's vocabulary.
  std::unordered_map<std::string, size_t, Hash, std::equal_to<>> places_;
  std::optional<uint32_t> next_id_;  // the id of the next token that the vocabulary lacks
  std::map<uint32_t, TokenSpec> added_;
  std::map<std::string, uint32_t, std::less<>> added_ids_;
};

}  // namespace ferry::text
