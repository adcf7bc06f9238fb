// Unigram finds the tokens of a word whose scores have the largest sum, as the Unigram model of
// tokenizer.json describes it. Scores are logarithms of probabilities.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer/prefix_trie.h"
#include "text/tokenizer/token_model.h"

namespace ferry::text {

class Unigram final : public TokenModel {
 public:
  // `vocabulary` must outlive the model.
  static Result<Unigram> make(const TokenizerDocument& document, const Vocabulary& vocabulary);

  // The time is linear in the size of the word. A position costs no more than the longest token.
  Status encode(std::string_view word, std::vector<int64_t>& ids) override;

 private:
  // The best path to a position in the word ends with the token `id`, which begins at `begin`.
  struct Node {
    double score = 0;
    size_t begin = kUnreached;
    uint32_t id = 0;
  };
  static constexpr size_t kUnreached = SIZE_MAX;

  Status read_options(const TokenizerDocument& document);
  Result<size_t> advance(std::string_view word, size_t at, size_t base);
  void reach(size_t place, size_t base, const Node& way);
  void take_path(std::string_view word, size_t base, size_t end, std::vector<int64_t>& ids);
  void add(std::string_view text, std::vector<int64_t>& ids) const;
  void flush_unknown(std::string_view word, std::vector<int64_t>& ids);

  const Vocabulary* vocabulary_ = nullptr;
  std::string where_;
  PrefixTrie trie_;
  std::vector<double> scores_;  // by id
  double unknown_score_ = 0;
  bool byte_fallback_ = false;
  std::optional<uint32_t> unk_;
  std::vector<std::optional<uint32_t>> fallback_tokens_;  // the token <0xNN> of each byte
  // Memory that is reused for every word.
  std::vector<Node> nodes_;  // of the places from the base on
  // begin and end of each token, the last token first
  std::vector<std::pair<size_t, size_t>> path_;
  std::vector<uint32_t> path_ids_;
  size_t unknown_begin_ = 0, unknown_end_ = 0;  // unknown text whose ids are pending
};

}  // namespace ferry::text
