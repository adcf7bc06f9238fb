#include "text/tokenizer/token_trie.h"

#include <algorithm>

namespace ferry::text {
namespace {

unsigned text_byte(std::string_view text, size_t at) {
  return static_cast<unsigned char>(text[at]);
}

}  // namespace

TokenTrie::TokenTrie(std::vector<std::pair<std::string, uint32_t>> texts)
    : texts_(std::move(texts)) {
  const auto same = [](const auto& a, const auto& b) { return a.first == b.first; };
  const auto less = [](const auto& a, const auto& b) { return a.first < b.first; };
  std::stable_sort(texts_.begin(), texts_.end(), less);
  texts_.erase(std::unique(texts_.begin(), texts_.end(), same), texts_.end());
  for (const auto& [text, number] : texts_) ++first_[text_byte(text, 0) + 1];
  for (size_t byte = 1; byte < first_.size(); ++byte) first_[byte] += first_[byte - 1];
}

std::optional<TokenTrie::Match> TokenTrie::find(std::string_view text, size_t from) const {
  if (texts_.empty()) return std::nullopt;
  for (size_t at = from; at < text.size(); ++at) {
    const unsigned byte = text_byte(text, at);
    if (first_[byte] == first_[byte + 1]) continue;
    if (const auto match = longest_at(text, at)) return match;
  }
  return std::nullopt;
}

// In the loop, [low, high) are the texts that agree with text[at, at + depth).
std::optional<TokenTrie::Match> TokenTrie::longest_at(std::string_view text, size_t at) const {
  std::optional<Match> best;
  auto low = texts_.begin() + first_[text_byte(text, at)];
  auto high = texts_.begin() + first_[text_byte(text, at) + 1];
  for (size_t depth = 1; low != high; ++depth) {
    if (low->first.size() == depth) {  // the shortest text sorts first
      best = Match{at, at + depth, low->second};
      if (++low == high) break;
    }
    if (at + depth == text.size()) break;
    const unsigned byte = text_byte(text, at + depth);
    const auto below = [&](const auto& entry) { return text_byte(entry.first, depth) < byte; };
    const auto equal = [&](const auto& entry) { return text_byte(entry.first, depth) == byte; };
    low = std::partition_point(low, high, below);
    high = std::partition_point(low, high, equal);
  }
  return best;
}

}  // namespace ferry::text
