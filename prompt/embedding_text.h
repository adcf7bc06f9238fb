// Texts that are to be embedded, as the tokens that an encoder takes: with the prompt before them,
// and cut as their tokenizer says. Source: sentence-transformers, SentenceTransformer.encode().
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/result.h"
#include "packer/bundle_reader.h"
#include "text/tokenizer/tokenizer.h"

namespace ferry::prompt {

struct EmbeddingTextOptions {
  std::optional<std::string> prompt = {};  // what precedes texts
  std::string prompt_name = {};            // a prompt of config_sentence_transformers.json instead
  bool truncate = false;                   // cut texts that are too long
  bool operator==(const EmbeddingTextOptions&) const = default;
};

class EmbeddingText {
 public:
  // `most`: tokens of the longest text. `is_stripped`: texts lose white space at both ends, as
  // sentence-transformers does before it encodes them.
  static Result<EmbeddingText> open(const packer::Bundle& bundle, int64_t most, bool is_stripped);

  // Reads the prompt and the side at which texts are cut. Without a prompt and a name the prompt is
  // the default of the bundle, if it has one. kUsage for a name that the bundle does not have.
  Status set(const packer::Bundle& bundle, const EmbeddingTextOptions& options);

  // kUsage for a text that is too long and not cut, kBadInput for one that is not UTF-8.
  Result<std::vector<int64_t>> tokens_of(const std::string& text);

 private:
  EmbeddingText(text::Tokenizer tokenizer, size_t most, bool is_stripped)
      : tokenizer_(std::move(tokenizer)), most_(most), is_stripped_(is_stripped) {}

  text::Tokenizer tokenizer_;
  size_t most_;
  bool is_stripped_;
  std::string prompt_;
  std::optional<text::Tokenizer::Cut> cut_;  // of texts that are too long
};

// Divides by the Euclidean norm, or by 1e-12 where that is larger, as torch's normalize() does.
void normalize(std::vector<float>& vector);

}  // namespace ferry::prompt
