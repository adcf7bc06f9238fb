// Normalizer: the first step of a tokenizer, text to text.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "text/tokenizer/tokenizer_json.h"

namespace ferry::text {

class NormalizerStep {
 public:
  virtual ~NormalizerStep() = default;
  // kBadInput if the text would grow beyond `most` bytes.
  virtual Status apply(std::string& text, size_t most) const = 0;
  // Whether it may remove the beginning of a text.
  virtual bool drops_start() const { return false; }
};

class Normalizer {
 public:
  // `value` is the field `normalizer`, null included. NFC, NFD, NFKC, NFKD, Lowercase, Strip,
  // Prepend, Replace, BertNormalizer, StripAccents, Nmt, Precompiled, ByteLevel, Sequence;
  // kUnsupported, by name, for others.
  static Result<Normalizer> make(const nlohmann::json& value, const std::string& where);

  bool drops_start() const;
  // `text` is valid UTF-8 and stays so.
  Status apply(std::string& text) const;

 private:
  std::vector<std::unique_ptr<NormalizerStep>> steps_;
};

}  // namespace ferry::text
