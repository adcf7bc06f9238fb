// WordRule implements the word-splitting regexes of GPT-2, Qwen2, Qwen3.5 and Llama 3 as code,
// because they take most of the time of encoding. Tests compare each with the matches of PCRE2.
#pragma once

#include <string_view>
#include <vector>

#include "text/tokenizer/regex.h"

namespace ferry::text {

// The ByteLevel pre-tokenizer uses the regex of GPT-2.
inline constexpr std::string_view kGpt2Regex =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

struct WordRule {
  std::string_view regex;  // as tokenizer.json files write it
  size_t (*end)(std::string_view text, size_t at);

  // Appends the words of `text`, which cover the text without gaps.
  void find_all(std::string_view text, std::vector<TextRange>& matches) const;
};

// Returns nullptr for other regexes.
const WordRule* find_word_rule(std::string_view regex);
// Returns all rules, for tests.
const std::vector<WordRule>& word_rules();

}  // namespace ferry::text
