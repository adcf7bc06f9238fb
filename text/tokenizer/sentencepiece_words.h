// SentencePieceWords cuts a text into the pieces that SentencePiece's own Unigram model finds, and
// numbers them by another vocabulary, as the tokenizer of Marian does. Sources: sentencepiece 0.2,
// normalizer.cc and unigram_model.cc; transformers, models/marian/tokenization_marian.py.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer/charsmap.h"
#include "text/tokenizer/prefix_trie.h"
#include "text/tokenizer/sentencepiece_model.h"
#include "text/tokenizer/token_model.h"

namespace ferry::text {

class SentencePieceWords final : public TokenModel {
 public:
  // `document.sentencepiece` is set, and its vocabulary numbers the pieces; model.unk_token is the
  // token for pieces that it lacks. `vocabulary` must outlive the model. kUnsupported for models
  // with what the class does not have.
  static Result<SentencePieceWords> make(const TokenizerDocument& document,
                                         const Vocabulary& vocabulary);

  // A text may begin with the code of a language, such as >>fra<<, which is a token of its own.
  Status encode(std::string_view text, std::vector<int64_t>& ids) override;

 private:
  // The best path to a position ends with a piece that begins at `begin`.
  struct Node {
    float score = 0;
    size_t begin = SIZE_MAX;
    bool known = false;
  };
  // Returns the text as SentencePiece normalises it, with U+2581 for blanks.
  Result<std::string> normalized(std::string_view text) const;
  // Appends the id of a piece.
  void add(std::string_view piece, std::vector<int64_t>& ids) const;
  void find_paths(std::string_view text);
  void reach(size_t end, float score, size_t begin, bool known);

  const Vocabulary* vocabulary_ = nullptr;
  std::shared_ptr<const SentencePieceModel> model_;
  std::optional<Charsmap> charsmap_;
  PrefixTrie trie_;  // of the indices of pieces
  float unknown_score_ = 0;
  uint32_t unk_ = 0;
  std::vector<Node> nodes_;  // by position in the text; reused
};

// PieceTexts collects the texts of tokens as MarianTokenizer writes them: a blank follows a special
// token, and pieces of the model lose the blank that they begin with behind it.
class PieceTexts {
 public:
  explicit PieceTexts(const SentencePieceModel& model);

  void begin(std::vector<std::string>& out) {
    out_ = &out;
    begins_ = true;
  }
  void add_special(std::string_view content);
  void add(std::string_view piece);

 private:
  std::set<std::string, std::less<>> known_;  // pieces of the model that stand for text
  bool strips_, trims_;
  bool begins_ = true;  // nothing has been written behind the last special token
  std::vector<std::string>* out_ = nullptr;
};

}  // namespace ferry::text
