// Normalizer is the first step of a tokenizer. It maps a text to a text.
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
  // kBadInput if the text would become larger than `most` bytes.
  virtual Status apply(std::string& text, size_t most) const = 0;
  // Returns whether the step may remove the beginning of a text.
  virtual bool drops_start() const { return false; }
};

class Normalizer {
 public:
  // `value` is the field `normalizer`, which may be null. Supported types: NFC, NFD, NFKC, NFKD,
  // Lowercase, Strip, Prepend, Replace, BertNormalizer, StripAccents, Nmt, Precompiled, ByteLevel,
  // Sequence. kUnsupported, by name, for others.
  static Result<Normalizer> make(const nlohmann::json& value, const std::string& where);

  bool drops_start() const;
  // `text` must be valid UTF-8, and remains valid.
  Status apply(std::string& text) const;

 private:
  std::vector<std::unique_ptr<NormalizerStep>> steps_;
};

}  // namespace ferry::text
