// The steps of a tokenizer beside its model. Encoding applies the normalizer, the pre-tokenizer,
// the model and the post-processor; decoding applies the decoder.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "text/tokenizer/regex.h"
#include "text/tokenizer/tokenizer_json.h"

namespace ferry::text {

class NormalizerStep {
 public:
  virtual ~NormalizerStep() = default;
  // kBadInput if the text would become larger than `most` bytes.
  virtual Status apply(std::string& text, size_t most) const = 0;
  // Returns whether the step may remove the beginning of a text.
  virtual bool drops_start() const { return false; }
  // Returns whether the step adds to the beginning of a text and does nothing else.
  virtual bool prepends() const { return false; }
};

// Normalizer is the first step of a tokenizer. It maps a text to a text.
class Normalizer {
 public:
  // `value` is the field `normalizer`, which may be null. Supported types: NFC, NFD, NFKC, NFKD,
  // Lowercase, Strip, Prepend, Replace, BertNormalizer, StripAccents, Nmt, Precompiled, ByteLevel,
  // Sequence. kUnsupported, by name, for others.
  static Result<Normalizer> make(const nlohmann::json& value, const std::string& where);

  bool drops_start() const;
  // `text` must be valid UTF-8, and remains valid.
  // With `within`, the text is a part of another one and does not begin it.
  Status apply(std::string& text, bool within = false) const;

 private:
  std::vector<std::unique_ptr<NormalizerStep>> steps_;
};

// A text and its pieces, in order. A step may remove parts of the text.
struct Pieces {
  std::string text;
  std::vector<TextRange> ranges;
  // Where asked for, the bytes of the source that each byte of the text was made of; else empty.
  std::vector<TextRange> origins = {};
  bool starts_input = false;  // whether the text begins at the start of the whole input

  std::string_view at(size_t i) const {
    return std::string_view(text).substr(ranges[i].begin, ranges[i].end - ranges[i].begin);
  }
};

class PreTokenizerStep {
 public:
  virtual ~PreTokenizerStep() = default;
  virtual Status apply(Pieces& pieces) = 0;
  virtual bool minds_start() const { return false; }
};

// PreTokenizer splits a normalized text into words, which the model encodes one at a time. It is
// not thread-safe, because its steps reuse memory.
class PreTokenizer {
 public:
  // `value` is the field `pre_tokenizer`, which may be null. Supported types: Split, ByteLevel,
  // Digits, Metaspace, BertPreTokenizer, Whitespace, WhitespaceSplit, Punctuation,
  // CharDelimiterSplit, Sequence. kUnsupported, by name, for others.
  static Result<PreTokenizer> make(const nlohmann::json& value, const std::string& where);

  // Returns whether words are bytes for a byte-level vocabulary, because ByteLevel is the last
  // step. The model then maps bytes to tokens directly, without the byte-level alphabet.
  bool byte_level() const { return byte_level_; }
  // Returns whether a step treats the first piece of the input differently.
  bool minds_start() const { return minds_start_; }
  // Returns whether a step after the first treats the first piece of the input differently. A step
  // before it may cut the input.
  bool minds_start_of_pieces() const { return minds_start_of_pieces_; }
  // `pieces` has one range, which is all of its text.
  Status apply(Pieces& pieces);

 private:
  std::vector<std::unique_ptr<PreTokenizerStep>> steps_;
  bool byte_level_ = false, minds_start_ = false, minds_start_of_pieces_ = false;
};

// Tokens with their types and, where asked for, the bytes of the text that they stand for.
struct TypedTokens {
  std::vector<int64_t> ids, types;
  std::vector<TextRange> spans;  // empty, or one for each token
  std::vector<bool> special;     // whether a post-processor added the token
};

// PostProcessor adds special tokens around a text, or around the two texts of a pair.
class PostProcessor {
 public:
  // `value` is the field `post_processor`, which may be null. Supported types: TemplateProcessing,
  // BertProcessing, RobertaProcessing, ByteLevel (which concerns offsets only), Sequence.
  // kUnsupported, by name, for others.
  static Result<PostProcessor> make(const nlohmann::json& value, const std::string& where);

  // Returns `ids` with the special tokens that belong around one text.
  std::vector<int64_t> apply(std::vector<int64_t> ids) const;

  // Encodes with token types. `second` may be nullptr. kUnsupported if the steps do not say what
  // they do with a pair.
  Result<TypedTokens> apply(TypedTokens first, TypedTokens* second) const;
  // Returns how many tokens are added to a text, or to a pair.
  size_t added(bool pair) const;
  // Whether blanks at the ends of tokens do not belong to their spans. The blank that ByteLevel
  // puts before a text then counts as one of the text, if `prefixed` says so.
  bool trims_spans() const { return trims_; }
  bool prefixed() const { return prefixed_; }

  // A piece is special tokens, or one of the texts.
  struct Piece {
    bool is_text = false;
    std::vector<int64_t> ids = {};
    bool second = false;  // the second text of a pair
    int64_t type = 0;
  };
  struct Template {
    std::vector<Piece> single;
    std::vector<Piece> pair;  // empty: the file does not say, or says something else
  };

 private:
  std::vector<Template> templates_;  // applied in this order
  bool trims_ = false, prefixed_ = false;
};

// A step takes the list of texts that the previous step returned, and returns another list.
class TokenDecoderStep {
 public:
  virtual ~TokenDecoderStep() = default;
  virtual Status apply(std::vector<std::string>& texts) const = 0;
};

// TokenDecoder makes a text of the texts of tokens.
class TokenDecoder {
 public:
  // `value` is the field `decoder`, which may be null. Supported types: ByteLevel, Replace,
  // ByteFallback, Fuse, Strip, Metaspace, WordPiece, BPEDecoder, Sequence. kUnsupported, by name,
  // for others.
  static Result<TokenDecoder> make(const nlohmann::json& value, const std::string& where);

  // Without steps the texts are joined by blanks, as in the reference.
  Result<std::string> apply(std::vector<std::string> texts) const;

 private:
  std::vector<std::unique_ptr<TokenDecoderStep>> steps_;
};

}  // namespace ferry::text
