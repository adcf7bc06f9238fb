#include "converters/keys/key_pattern.h"

#include <algorithm>

namespace ferry::converters {
namespace {

constexpr std::string_view kLayer = "{i}";
constexpr std::string_view kExpert = "{e}";

void replace(std::string& text, std::string_view placeholder, const std::string& number) {
  const size_t at = text.find(placeholder);
  if (at != std::string::npos) text.replace(at, placeholder.size(), number.empty() ? "0" : number);
}

}  // namespace

std::string_view leading_number(std::string_view text) {
  size_t n = 0;
  while (n < text.size() && text[n] >= '0' && text[n] <= '9') ++n;
  if (n > 1 && text[0] == '0') return {};
  return text.substr(0, n);
}

KeyPattern::KeyPattern(std::string_view pattern) {
  if (pattern.ends_with('*')) {
    open_end_ = true;
    pattern.remove_suffix(1);
  }
  while (true) {
    const size_t at = std::min(pattern.find(kLayer), pattern.find(kExpert));
    if (at == std::string_view::npos) break;
    parts_.push_back({std::string(pattern.substr(0, at)), pattern[at + 1]});
    pattern.remove_prefix(at + kLayer.size());
  }
  parts_.push_back({std::string(pattern), 0});
}

std::optional<KeyNumbers> KeyPattern::match(std::string_view key) const {
  KeyNumbers numbers;
  for (const Part& part : parts_) {
    if (!key.starts_with(part.text)) return std::nullopt;
    key.remove_prefix(part.text.size());
    if (part.number == 0) break;
    const std::string_view digits = leading_number(key);
    if (digits.empty()) return std::nullopt;
    (part.number == 'i' ? numbers.layer : numbers.expert) = digits;
    key.remove_prefix(digits.size());
  }
  if (!key.empty() && !open_end_) return std::nullopt;
  return numbers;
}

std::string fill_in(std::string pattern, const KeyNumbers& numbers) {
  replace(pattern, kLayer, numbers.layer);
  replace(pattern, kExpert, numbers.expert);
  return pattern;
}

std::string number_after(std::string_view key, std::string_view word) {
  const size_t at = key.find(word);
  if (at == std::string_view::npos) return {};
  return std::string(leading_number(key.substr(at + word.size())));
}

}  // namespace ferry::converters
