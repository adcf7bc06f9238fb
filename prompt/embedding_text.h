// EmbeddingText makes the tokens that a text encoder takes of a text: it puts the prompt before the
// text, and cuts the text as the tokenizer's files say. Source: sentence-transformers,
// SentenceTransformer.encode().
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "core/result.h"
#include "packer/bundle_reader.h"
#include "text/tokenizer/tokenizer.h"

namespace ferry::prompt {

struct EmbeddingTextOptions {
  std::optional<std::string> prompt = {};  // precedes each text
  // the name of a prompt in config_sentence_transformers.json, instead of `prompt`
  std::string prompt_name = {};
  bool truncate = false;  // whether texts that are too long are cut
  bool operator==(const EmbeddingTextOptions&) const = default;
};

class EmbeddingText {
 public:
  // `most` is the number of tokens of the longest text. With `is_stripped`, texts lose white space
  // at both ends, as sentence-transformers does before it encodes them.
  static Result<EmbeddingText> open(const packer::Bundle& bundle, int64_t most, bool is_stripped);

  // Reads the prompt and the side at which texts are cut. If the options have no prompt and no
  // name, the bundle's default prompt is used, if it has one. kUsage for a name that the bundle
  // does not have.
  Status set(const packer::Bundle& bundle, const EmbeddingTextOptions& options);

  // kUsage for a text that is too long and must not be cut, kBadInput for one that is not UTF-8.
  Result<std::vector<int64_t>> tokens_of(const std::string& text);

 private:
  EmbeddingText(text::Tokenizer tokenizer, size_t most, bool is_stripped)
      : tokenizer_(std::move(tokenizer)), most_(most), is_stripped_(is_stripped) {}

  text::Tokenizer tokenizer_;
  size_t most_;
  bool is_stripped_;
  std::string prompt_;
  std::optional<text::Tokenizer::Cut> cut_;  // the side at which texts that are too long are cut
};

// Returns a JSON object that a file of the bundle holds; an empty one if there is no such file.
Result<nlohmann::json> object_of_bundle(const packer::Bundle& bundle, const char* file);

// Returns the side at which the tokenizer of transformers cuts a text. `otherwise` is what the file
// of the tokenizer says.
Result<text::Tokenizer::Cut> cut_of_bundle(const packer::Bundle& bundle,
                                           std::optional<text::Tokenizer::Cut> otherwise);

// Divides by the Euclidean norm, or by 1e-12 where that is larger, as torch's normalize() does.
void normalize(std::vector<float>& vector);

}  // namespace ferry::prompt
