// TokenDecoder makes a text of the texts of tokens.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "text/tokenizer/tokenizer_json.h"

namespace ferry::text {

// A step takes the list of texts that the previous step returned, and returns another list.
class TokenDecoderStep {
 public:
  virtual ~TokenDecoderStep() = default;
  virtual Status apply(std::vector<std::string>& texts) const = 0;
};

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
