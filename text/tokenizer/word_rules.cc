#include "text/tokenizer/word_rules.h"

#include <array>

#include "core/utf8.h"
#include "text/unicode.h"

namespace ferry::text {
namespace {

using unicode::kLetter;
using unicode::kMark;
using unicode::kNewline;
using unicode::kNumber;
using unicode::kSpace;

struct Peek {
  uint8_t of;     // unicode::Class
  uint32_t size;  // in bytes; 0 at the end of the text
};

constexpr std::array<uint8_t, 128> kAscii = [] {
  std::array<uint8_t, 128> classes{};
  for (size_t c = 'a'; c <= 'z'; ++c) classes[c] = kLetter;
  for (size_t c = 'A'; c <= 'Z'; ++c) classes[c] = kLetter;
  for (size_t c = '0'; c <= '9'; ++c) classes[c] = kNumber;
  for (const unsigned char c : {'\t', '\v', '\f', ' '}) classes[c] = kSpace;
  for (const unsigned char c : {'\r', '\n'}) classes[c] = kSpace | kNewline;
  return classes;
}();

inline Peek peek(std::string_view text, size_t at) {
  if (at >= text.size()) return {0, 0};
  const auto byte = static_cast<unsigned char>(text[at]);
  if (byte < 0x80) return {kAscii[byte], 1};
  const utf8::Char c = utf8::decode_valid(text, at);
  return {unicode::class_of(c.value), c.size};
}

// Returns the position after the characters that `wanted` accepts.
template <class Wanted>
inline size_t run(std::string_view text, size_t at, Wanted wanted) {
  for (Peek c = peek(text, at); c.size != 0 && wanted(c.of); c = peek(text, at)) at += c.size;
  return at;
}

// Returns the size of 's 't 're 've 'm 'll or 'd at an apostrophe, or 0 if none of them is there.
// If case is ignored, the letter U+017F is an s too.
template <bool any_case>
size_t contraction_end(std::string_view text, size_t at) {
  const auto letter = [&](size_t i) {
    const char c = i < text.size() ? text[i] : '\0';
    return any_case && c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
  };
  const char first = letter(at + 1), second = letter(at + 2);
  if (first == 's' || first == 't' || first == 'm' || first == 'd') return at + 2;
  if ((first == 'r' || first == 'v') && second == 'e') return at + 3;
  if (first == 'l' && second == 'l') return at + 3;
  if (any_case && text.substr(at + 1).starts_with("\xC5\xBF")) return at + 3;
  return 0;
}

// Matches \s+(?!\S)|\s+ at white space that ends at `end`. The last character is left to the word
// that follows.
size_t blanks_end(std::string_view text, size_t at, size_t end) {
  if (end == text.size()) return end;
  const size_t last = end - utf8::decode_before(text, end).size;
  return last > at ? last : end;
}

size_t gpt2_end(std::string_view text, size_t at) {
  if (text[at] == '\'') {
    if (const size_t end = contraction_end<false>(text, at)) return end;
  }
  const Peek first = peek(text, at);
  // The rule begins with " ?".
  const size_t start = text[at] == ' ' ? at + 1 : at;
  const Peek c = start == at ? first : peek(text, start);
  if (c.size != 0 && (c.of & kSpace) == 0) {
    const uint8_t kind = c.of & (kLetter | kNumber);
    return run(text, start + c.size, [kind](uint8_t of) {
      return (of & kSpace) == 0 && (of & (kLetter | kNumber)) == kind;
    });
  }
  return blanks_end(text, at, run(text, at, [](uint8_t of) { return (of & kSpace) != 0; }));
}

// Implements the regexes since Llama 3. `letters` are the character classes of a word, `digits` is
// the largest number of digits in a number.
template <uint8_t letters, int digits>
size_t modern_end(std::string_view text, size_t at) {
  constexpr auto is_letter = [](uint8_t of) { return (of & letters) != 0; };
  constexpr auto is_symbol = [](uint8_t of) { return (of & (letters | kNumber | kSpace)) == 0; };
  if (text[at] == '\'') {
    if (const size_t end = contraction_end<true>(text, at)) return end;
  }
  const Peek first = peek(text, at);
  if ((first.of & kLetter) != 0) return run(text, at + first.size, is_letter);
  if ((first.of & kNumber) != 0) {
    size_t end = at + first.size;
    for (int i = 1; i < digits; ++i) {
      const Peek next = peek(text, end);
      if ((next.of & kNumber) == 0) break;
      end += next.size;
    }
    return end;
  }
  const Peek second = peek(text, at + first.size);
  if ((first.of & kNewline) == 0 && is_letter(second.of)) {
    return run(text, at + first.size + second.size, is_letter);
  }
  if (is_letter(first.of)) return at + first.size;  // a mark without a letter
  const bool blank = text[at] == ' ' && second.size != 0 && is_symbol(second.of);
  if (blank || is_symbol(first.of)) {
    const size_t end = run(text, at + first.size, is_symbol);
    return run(text, end, [](uint8_t of) { return (of & kNewline) != 0; });
  }
  // White space is matched up to its last newline, if it has one.
  size_t newline = 0, end = at;
  for (Peek c = first; c.size != 0 && (c.of & kSpace) != 0; c = peek(text, end)) {
    end += c.size;
    if ((c.of & kNewline) != 0) newline = end;
  }
  return newline != 0 ? newline : blanks_end(text, at, end);
}

}  // namespace

const std::vector<WordRule>& word_rules() {
  static const std::vector<WordRule> rules = {
      {kGpt2Regex, gpt2_end},
      // Qwen2
      {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
       modern_end<kLetter, 1>},
      // Qwen3.5
      {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
       modern_end<kLetter | kMark, 1>},
      // Llama 3
      {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
       modern_end<kLetter, 3>},
  };
  return rules;
}

const WordRule* find_word_rule(std::string_view regex) {
  for (const WordRule& rule : word_rules()) {
    if (rule.regex == regex) return &rule;
  }
  return nullptr;
}

void WordRule::find_all(std::string_view text, std::vector<TextRange>& matches) const {
  for (size_t at = 0; at < text.size();) {
    const size_t next = end(text, at);
    matches.push_back({static_cast<uint32_t>(at), static_cast<uint32_t>(next)});
    at = next;
  }
}

}  // namespace ferry::text
