// ClassifierText makes the tokens that a classifier takes of a text or of a pair of texts, and
// scores_of() the scores of its labels. Source: transformers, pipelines/text_classification.py.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "packer/bundle_reader.h"
#include "text/tokenizer/tokenizer.h"
#include "text/tokenizer/tokenizer_steps.h"

namespace ferry::prompt {

// A text, or a question and a passage.
struct ClassifiedText {
  std::string text = {};
  std::optional<std::string> pair = {};
};

class ClassifierText {
 public:
  // `most` is the number of tokens of the longest text. With `truncate`, longer ones are cut, at
  // the side that the tokenizer's files name; otherwise they are refused.
  static Result<ClassifierText> open(const packer::Bundle& bundle, int64_t most, bool truncate);

  // Types are those that the tokenizer of transformers gives its models; none where it gives none.
  // With `spans`, tokens have their bytes in the text. kUsage for a text that is too long and must
  // not be cut, kBadInput for one that is not UTF-8.
  Result<text::TypedTokens> tokens_of(const ClassifiedText& text, bool spans);

  text::Tokenizer& tokenizer() { return tokenizer_; }

 private:
  ClassifierText(text::Tokenizer tokenizer, size_t most, std::optional<text::Tokenizer::Cut> cut,
                 bool typed)
      : tokenizer_(std::move(tokenizer)), most_(most), cut_(cut), typed_(typed) {}

  text::Tokenizer tokenizer_;
  size_t most_;
  std::optional<text::Tokenizer::Cut> cut_;
  bool typed_;
};

// Returns the scores of the labels: "softmax", "sigmoid", or with "none" the outputs themselves.
std::vector<float> scores_of(std::span<const float> outputs, std::string_view function);

}  // namespace ferry::prompt
