// Unigram: the tokens of a word whose scores have the largest sum, as the Unigram model of
// tokenizer.json describes it. The scores are logarithms of probabilities.
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
  // `vocabulary` must outlive this.
  static Result<Unigram> make(const TokenizerDocument& document, const Vocabulary& vocabulary);

  // Linear in the word: a place costs no more than the longest token.
  Status encode(std::string_view word, std::vector<int64_t>& ids) override;

 private:
  // The best way to reach a place in the word: by the token `id` from `begin`.
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
  std::vector<std::optional<uint32_t>> fallback_tokens_;  // by byte: that of <0xNN>
  // Scratch memory for the current word.
  std::vector<Node> nodes_;                      // of the places from the base on
  std::vector<std::pair<size_t, size_t>> path_;  // begin and end of its tokens, the last one first
  std::vector<uint32_t> path_ids_;
  size_t unknown_begin_ = 0, unknown_end_ = 0;  // unknown text that was not given out yet
};

}  // namespace ferry::text
