// The lexer of chat templates (Jinja 3.1 with trim_blocks and lstrip_blocks, as transformers
// configures it). It returns plain text, with whitespace control already applied, and the tokens
// inside tags.
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
  kString,  // escape sequences are already replaced
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

// The last token is kEnd. kBadInput for a tag, string or bracket that is not closed. Error messages
// begin with "line N: ".
Result<std::vector<Token>> tokenize(std::string_view source);

}  // namespace ferry::text::chat
