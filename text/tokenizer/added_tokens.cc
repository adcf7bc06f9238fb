#include "text/tokenizer/added_tokens.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/text.h"
#include "core/utf8.h"
#include "text/tokenizer/reference_unicode.h"
#include "text/unicode.h"

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

// -- AddedTokens

namespace {

constexpr size_t kMaxAddedTokens = 1 << 17;

Result<AddedToken> read_token(const nlohmann::json& value, const std::string& where) {
  StepFields fields = FERRY_TRY(StepFields::of(value, where));
  AddedToken token;
  token.content = FERRY_TRY(fields.text("content"));
  if (token.content.empty()) return fields.bad("'content' is empty");
  if (token.content.size() > kMaxStepText) return fields.bad("'content' is too long");
  token.id = static_cast<uint32_t>(FERRY_TRY(fields.integer("id", 0, kMaxTokenId)));
  token.special = FERRY_TRY(fields.flag("special", false));
  token.normalized = FERRY_TRY(fields.flag("normalized", !token.special));
  token.single_word = FERRY_TRY(fields.flag("single_word", false));
  token.lstrip = FERRY_TRY(fields.flag("lstrip", false));
  token.rstrip = FERRY_TRY(fields.flag("rstrip", false));
  FERRY_RETURN_IF_ERROR(fields.finish());
  return token;
}

}  // namespace

Result<AddedTokens> AddedTokens::make(const TokenizerDocument& document,
                                      const Vocabulary& vocabulary, const Normalizer& normalizer) {
  AddedTokens added;
  const auto list = document.root.find("added_tokens");
  if (list == document.root.end() || list->is_null()) return added;
  const std::string where = document.name + ": added_tokens";
  if (!list->is_array()) return bad_input(where + ": not a list");
  if (list->size() > kMaxAddedTokens) return bad_input(where + ": too many");
  // The reference ignores the stated id and gives new contents the next free id. A file that states
  // another id would be read differently there.
  auto next = static_cast<uint32_t>(vocabulary.size());
  std::vector<std::pair<std::string, uint32_t>> plain, normalized;
  for (const nlohmann::json& value : *list) {
    const size_t number = added.tokens_.size();
    AddedToken token = FERRY_TRY(read_token(value, fmt::format("{}[{}]", where, number)));
    const auto known = vocabulary.find(token.content);
    const uint32_t expected = known ? *known : next++;
    if (token.id != expected) {
      return bad_input(fmt::format("{}[{}]: {} has the id {}, expected {}", where, number,
                                   quoted(token.content, 60), token.id, expected));
    }
    const bool is_new = added.by_content_.emplace(token.content, number).second &&
                        added.by_id_.emplace(token.id, number).second;
    if (!is_new) {
      return bad_input(
          fmt::format("{}[{}]: {} is there twice", where, number, quoted(token.content, 60)));
    }
    token.text = token.content;
    if (token.normalized) FERRY_RETURN_IF_ERROR(normalizer.apply(token.text));
    if (!token.text.empty() && !document.plain_texts) {
      (token.normalized ? normalized : plain)
          .emplace_back(token.text, static_cast<uint32_t>(number));
    }
    added.tokens_.push_back(std::move(token));
  }
  for (AddedToken& token : added.tokens_) {
    const AddedToken* written_alike = added.find(token.text);
    token.skipped = written_alike != nullptr && written_alike->special;
  }
  added.plain_ = TokenTrie(std::move(plain));
  added.normalized_ = TokenTrie(std::move(normalized));
  return added;
}

void AddedTokens::cut(std::string_view text, bool normalized, std::vector<Part>& parts) const {
  const TokenTrie& trie = normalized ? normalized_ : plain_;
  size_t done = 0;
  for (size_t from = 0; const auto match = trie.find(text, from);) {
    from = match->end;
    const AddedToken& token = tokens_[match->number];
    size_t begin = match->begin, end = match->end;
    const auto word_before = [&] {
      return reference::is_word(utf8::decode_before(text, begin).value);
    };
    const auto word_after = [&] { return reference::is_word(utf8::decode_valid(text, end).value); };
    if (token.single_word &&
        ((begin > 0 && word_before()) || (end < text.size() && word_after()))) {
      continue;
    }
    while (token.lstrip && begin > done) {
      const utf8::Char c = utf8::decode_before(text, begin);
      if (!unicode::is_space(c.value)) break;
      begin -= c.size;
    }
    while (token.rstrip && end < text.size()) {
      const utf8::Char c = utf8::decode_valid(text, end);
      if (!unicode::is_space(c.value)) break;
      end += c.size;
    }
    if (done < begin) parts.push_back({nullptr, done, begin});
    parts.push_back({&token, begin, end});
    done = end;
  }
  if (done < text.size()) parts.push_back({nullptr, done, text.size()});
}

const AddedToken* AddedTokens::find(int64_t id) const {
  const auto at = by_id_.find(id);
  return at == by_id_.end() ? nullptr : &tokens_[at->second];
}

const AddedToken* AddedTokens::find(std::string_view content) const {
  const auto at = by_content_.find(content);
  return at == by_content_.end() ? nullptr : &tokens_[at->second];
}

}  // namespace ferry::text
