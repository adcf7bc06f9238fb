// PostProcessor adds special tokens around a text.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/result.h"
#include "text/tokenizer/tokenizer_json.h"

namespace ferry::text {

class PostProcessor {
 public:
  // `value` is the field `post_processor`, which may be null. Supported types: TemplateProcessing,
  // BertProcessing, RobertaProcessing, ByteLevel (which concerns offsets only), Sequence.
  // kUnsupported, by name, for others.
  static Result<PostProcessor> make(const nlohmann::json& value, const std::string& where);

  // Returns `ids` with the special tokens that belong around one text.
  std::vector<int64_t> apply(std::vector<int64_t> ids) const;

  // A piece is special tokens, or the text, which may occur several times.
  struct Piece {
    bool is_text = false;
    std::vector<int64_t> ids;
  };

 private:
  std::vector<std::vector<Piece>> templates_;  // applied in this order
};

}  // namespace ferry::text
