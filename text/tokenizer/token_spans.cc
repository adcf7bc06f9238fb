#include "text/tokenizer/token_spans.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/interrupt.h"
#include "core/text.h"
#include "core/utf8.h"
#include "text/tokenizer/byte_level.h"
#include "text/tokenizer/reference_unicode.h"
#include "text/unicode.h"

namespace ferry::text {
namespace {

constexpr size_t kMostInserted = 16;  // bytes that a normalizer puts before a text
// Marks that are looked at together with a character, so that a text of marks takes linear time.
constexpr size_t kMostMarks = 64;

Failure no_spans(std::string_view text, const char* what) {
  return fail(
      ErrorCode::kUnsupported,
      fmt::format("the place of tokens in the text cannot be told: {} {}", quoted(text, 60), what));
}

// Aligns a text with its normalized form, character by character.
class Alignment {
 public:
  Alignment(const Normalizer& normalizer, std::string_view text, std::string_view normal)
      : normalizer_(normalizer), text_(text), normal_(normal) {}

  Result<std::vector<TextRange>> run() {
    while (at_ < text_.size()) {
      FERRY_RETURN_IF_ERROR(check_interrupt());
      FERRY_RETURN_IF_ERROR(step());
    }
    if (origins_.size() == normal_.size()) return std::move(origins_);
    return no_spans(text_, "is normalized in another way than its characters");
  }

 private:
  Status step() {
    const utf8::Char c = utf8::decode_valid(text_, at_);
    const auto begin = static_cast<uint32_t>(at_), end = static_cast<uint32_t>(at_ + c.size);
    const size_t cluster = end_of_cluster(end);
    for (const size_t stop : {size_t{end}, cluster}) {
      const std::string made = FERRY_TRY(normalized(text_.substr(at_, stop - at_)));
      // A character that a mark follows may be composed with it.
      if (stop == end && cluster > end && !fits_with_marks(made, end, cluster)) continue;
      if (!take(made, {begin, end})) continue;
      at_ = stop;
      return {};
    }
    // White space at the ends, or beside other white space, may be removed.
    if (!unicode::is_space(c.value)) {
      return no_spans(text_.substr(at_), "is normalized in another way than its characters");
    }
    at_ = end;
    return {};
  }

  size_t end_of_cluster(size_t at) const {
    for (size_t marks = 0; marks < kMostMarks && at < text_.size(); ++marks) {
      const utf8::Char c = utf8::decode_valid(text_, at);
      if (!reference::is_mark(c.value)) break;
      at += c.size;
    }
    return at;
  }

  // Whether the character and its marks, each normalized alone, stand in the normalized text.
  bool fits_with_marks(const std::string& made, size_t at, size_t end) const {
    std::string all = made;
    while (at < end) {
      const utf8::Char c = utf8::decode_valid(text_, at);
      const auto mark = normalized(text_.substr(at, c.size));
      if (!mark) return false;
      all += *mark;
      at += c.size;
    }
    return normal_.substr(origins_.size()).starts_with(all);
  }

  Result<std::string> normalized(std::string_view part) const {
    std::string out(part);
    FERRY_RETURN_IF_ERROR(normalizer_.apply(out, /*within=*/true));
    return out;
  }

  // Gives the next bytes of the normalized text the origin `from`, if they are `made`.
  bool take(const std::string& made, TextRange from) {
    const std::string_view rest = normal_.substr(origins_.size());
    size_t inserted = 0;
    if (origins_.empty() && !made.empty()) {
      inserted = rest.substr(0, kMostInserted + made.size()).find(made);
    }
    if (inserted == std::string_view::npos || !rest.substr(inserted).starts_with(made))
      return false;
    origins_.resize(origins_.size() + inserted + made.size(), from);
    return true;
  }

  const Normalizer& normalizer_;
  std::string_view text_, normal_;
  size_t at_ = 0;
  std::vector<TextRange> origins_;
};

// Returns the byte that "<0xNN>" stands for.
std::optional<char> fallback_byte(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token.back() != '>') return std::nullopt;
  unsigned value = 0;
  for (const char c : token.substr(3, 2)) {
    const bool digit = c >= '0' && c <= '9', letter = c >= 'A' && c <= 'F';
    if (!digit && !letter) return std::nullopt;
    value = value * 16 + static_cast<unsigned>(digit ? c - '0' : c - 'A' + 10);
  }
  return static_cast<char>(value);
}

}  // namespace

Result<std::vector<TextRange>> align_normalized(const Normalizer& normalizer, std::string_view text,
                                                std::string_view normal) {
  return Alignment(normalizer, text, normal).run();
}

TokenSpelling TokenSpelling::make(const TokenizerDocument& document, bool byte_level) {
  TokenSpelling spelling;
  spelling.byte_level_ = byte_level;
  const auto model = document.root.find("model");
  if (model == document.root.end() || !model->is_object()) return spelling;
  const auto text = [&](const char* key) {
    const auto value = model->find(key);
    return value != model->end() && value->is_string() ? value->get<std::string>() : std::string();
  };
  spelling.prefix_ = text("continuing_subword_prefix");
  spelling.suffix_ = text("end_of_word_suffix");
  spelling.unknown_ = text("unk_token");
  const auto id = model->find("unk_id");
  if (id != model->end() && id->is_number_unsigned()) spelling.unknown_id_ = id->get<int64_t>();
  return spelling;
}

std::optional<int64_t> TokenSpelling::unknown(const Vocabulary& vocabulary) const {
  if (unknown_id_ || unknown_.empty()) return unknown_id_;
  const auto found = vocabulary.find(unknown_);
  return found ? std::optional<int64_t>(*found) : std::nullopt;
}

std::string TokenSpelling::written(std::string_view token, bool first) const {
  if (!first && !prefix_.empty() && token.starts_with(prefix_)) token.remove_prefix(prefix_.size());
  if (!suffix_.empty() && token.ends_with(suffix_)) token.remove_suffix(suffix_.size());
  if (!byte_level_) return std::string(token);
  std::string bytes;
  for (size_t at = 0; at < token.size();) {
    const utf8::Char c = utf8::decode_valid(token, at);
    at += c.size;
    const auto* found = std::ranges::find(byte_level::kCharOf, c.value);
    if (found != std::end(byte_level::kCharOf)) {
      bytes += static_cast<char>(found - std::begin(byte_level::kCharOf));
    }
  }
  return bytes;
}

Status TokenSpelling::find(std::string_view word, std::span<const int64_t> ids,
                           const Vocabulary& vocabulary, std::vector<TextRange>& spans) const {
  size_t at = 0;
  const size_t before = spans.size();
  bool unknown = false;  // whether the token before may stand for more bytes
  for (const int64_t id : ids) {
    const std::string_view token = vocabulary.token(id).value_or("");
    const std::string text = written(token, spans.size() == before);
    const auto byte = fallback_byte(token);
    size_t begin = at, size = text.size();
    if (!text.empty() && unknown) {
      begin = std::min(word.find(text, at), word.size());
      spans.back().end = static_cast<uint32_t>(begin);
    }
    if (text.empty() || !word.substr(begin).starts_with(text)) {
      const bool is_byte = byte && begin < word.size() && word[begin] == *byte;
      size = is_byte ? 1 : 0;
      unknown = !is_byte;
    } else {
      unknown = false;
    }
    at = begin + size;
    spans.push_back({static_cast<uint32_t>(begin), static_cast<uint32_t>(at)});
  }
  if (unknown) {
    spans.back().end = static_cast<uint32_t>(word.size());
    at = word.size();
  }
  return ids.empty() || at == word.size() ? Status()
                                          : no_spans(word, "is not spelled by its tokens");
}

}  // namespace ferry::text
