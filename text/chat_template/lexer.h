// The words of a chat template (Jinja 3.1 with trim_blocks and lstrip_blocks, the way transformers
// sets it up): plain text with the whitespace control already done, and the tokens of its tags.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"

namespace ferry::text::chat {

inline constexpr size_t kMaxTemplateBytes = 1 << 20;

enum class TokenKind {
  kText,        // outside of tags
  kBlockBegin,  // {%
  kBlockEnd,
  kPrintBegin,  // {{
  kPrintEnd,
  kName,
  kString,  // with its escapes replaced
  kInteger,
  kReal,
  kOperator,
  kEnd
};

struct Token {
  TokenKind kind;
  std::string text;
  int line;
};

// Ends with one kEnd. kBadInput for what is not closed; messages begin with "line N: ".
Result<std::vector<Token>> tokenize(std::string_view source);

}  // namespace ferry::text::chat
