// PreTokenizer splits a normalized text into words, which the model encodes one at a time.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "text/tokenizer/regex.h"
#include "text/tokenizer/tokenizer_json.h"

namespace ferry::text {

// A text and its pieces, in order. A step may remove parts of the text.
struct Pieces {
  std::string text;
  std::vector<TextRange> ranges;
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

// PreTokenizer is not thread-safe, because its steps reuse memory.
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

}  // namespace ferry::text
