#include "text/chat_template/lexer.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "core/text.h"
#include "core/utf8.h"
#include "text/chat_template/text_methods.h"

namespace ferry::text::chat {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_name_begin(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool is_blank(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

// Normalizes line ends to \n and removes the last one.
std::string with_unix_lines(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r') {
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
      out += '\n';
    } else {
      out += source[i];
    }
  }
  if (out.ends_with('\n')) out.pop_back();
  return out;
}

class Lexer {
 public:
  explicit Lexer(std::string source) : source_(std::move(source)) {}

  Result<std::vector<Token>> run() {
    while (at_ < source_.size()) FERRY_RETURN_IF_ERROR(section());
    add(TokenKind::kEnd, "");
    return std::move(tokens_);
  }

 private:
  Failure bad(std::string_view what) const {
    return bad_input(fmt::format("line {}: {}", line_, what));
  }
  void add(TokenKind kind, std::string text) { tokens_.push_back({kind, std::move(text), line_}); }
  bool follows(std::string_view text, size_t at) const {
    return std::string_view(source_).substr(at, text.size()) == text;
  }
  // Moves to the position `to` and counts the lines on the way.
  void advance(size_t to) {
    line_ += static_cast<int>(std::count(source_.begin() + static_cast<std::ptrdiff_t>(at_),
                                         source_.begin() + static_cast<std::ptrdiff_t>(to), '\n'));
    at_ = to;
  }

  // Reads the text up to the next tag, and the tag.
  Status section() {
    const size_t begin = find_tag();
    const bool tag = begin < source_.size();
    add_text(begin, tag ? source_[begin + 1] : ' ', tag ? sign_at(begin + 2) : ' ');
    if (!tag) return {};
    line_starts_ = false;
    advance(begin + 2 + (sign_at(begin + 2) != ' ' ? 1 : 0));
    if (source_[begin + 1] == '#') return comment();
    if (source_[begin + 1] == '{') return tag_body(TokenKind::kPrintBegin);
    if (const size_t end = raw_tag("raw", at_)) return raw(end);
    return tag_body(TokenKind::kBlockBegin);
  }

  size_t find_tag() const {
    for (size_t i = at_; i + 1 < source_.size(); ++i) {
      if (source_[i] == '{' && std::string_view("{%#").find(source_[i + 1]) != std::string::npos) {
        return i;
      }
    }
    return source_.size();
  }
  char sign_at(size_t at) const {
    return at < source_.size() && (source_[at] == '-' || source_[at] == '+') ? source_[at] : ' ';
  }

  // Adds the text before a tag. A '-' in the tag strips all whitespace before the tag. Without a
  // '+', a tag that prints nothing strips the blanks between the beginning of its line and the tag.
  void add_text(size_t end, char tag, char sign) {
    std::string_view text = std::string_view(source_).substr(at_, end - at_);
    if (sign == '-') {
      text = strip(text, Side::kRight);
    } else if (sign != '+' && (tag == '%' || tag == '#')) {
      const size_t newline = text.rfind('\n');
      const size_t begin = newline == std::string_view::npos ? 0 : newline + 1;
      const bool whole_line = begin > 0 || line_starts_;
      if (whole_line && strip(text.substr(begin), Side::kBoth).empty())
        text = text.substr(0, begin);
    }
    if (!text.empty()) add(TokenKind::kText, std::string(text));
    advance(end);
  }

  // Ends a tag whose closing sign is at `at`. With `newline`, a newline directly after the tag
  // belongs to the tag.
  Status close(size_t at, bool newline) {
    const char sign = sign_at(at);
    size_t end = at + (sign == ' ' ? 2 : 3);
    if (sign == '-') {
      end = source_.size() - strip(std::string_view(source_).substr(end), Side::kLeft).size();
    } else if (newline && sign == ' ' && end < source_.size() && source_[end] == '\n') {
      ++end;
    }
    line_starts_ = source_[end - 1] == '\n';
    advance(end);
    return {};
  }

  Status comment() {
    const size_t end = source_.find("#}", at_);
    if (end == std::string::npos) return bad("a comment is not closed");
    const bool sign = end > at_ && sign_at(end - 1) != ' ';
    return close(sign ? end - 1 : end, true);
  }

  // Returns the position after `{% WORD %}` whose opening sign is before `at`, or 0 if there is
  // none.
  size_t raw_tag(std::string_view word, size_t at) const {
    while (at < source_.size() && is_blank(source_[at])) ++at;
    if (!follows(word, at)) return 0;
    at += word.size();
    while (at < source_.size() && is_blank(source_[at])) ++at;
    const bool plus = word == "endraw" && follows("+%}", at);
    return plus || follows("%}", at) || follows("-%}", at) ? at : 0;
  }

  Status raw(size_t end) {
    FERRY_RETURN_IF_ERROR(close(end, false));
    for (size_t at = source_.find("{%", at_); at != std::string::npos;
         at = source_.find("{%", at + 2)) {
      const char sign = sign_at(at + 2);
      if (const size_t close_at = raw_tag("endraw", at + 2 + (sign != ' ' ? 1 : 0))) {
        add_text(at, '%', sign);
        return close(close_at, true);
      }
    }
    return bad("a raw block is not closed");
  }

  // -- inside a tag

  Status tag_body(TokenKind begin) {
    const bool print = begin == TokenKind::kPrintBegin;
    const std::string_view end = print ? "}}" : "%}";
    const int first_line = line_;
    add(begin, "");
    brackets_.clear();
    while (at_ < source_.size()) {
      if (is_blank(source_[at_])) {
        advance(at_ + 1);
        continue;
      }
      const bool sign = source_[at_] == '-' || (!print && source_[at_] == '+');
      if (brackets_.empty() && follows(end, at_ + (sign ? 1 : 0))) {
        add(print ? TokenKind::kPrintEnd : TokenKind::kBlockEnd, "");
        return close(at_, !print);
      }
      FERRY_RETURN_IF_ERROR(word());
    }
    return bad(fmt::format("the tag of line {} is not closed", first_line));
  }

  Status word() {
    const char c = source_[at_];
    if (c == '\'' || c == '"') return string(c);
    if (is_digit(c)) return number();
    if (is_name_begin(c)) {
      size_t end = at_;
      while (end < source_.size() && (is_name_begin(source_[end]) || is_digit(source_[end]))) ++end;
      add(TokenKind::kName, source_.substr(at_, end - at_));
      at_ = end;
      return {};
    }
    return symbol();
  }

  Status number() {
    size_t end = at_;
    const auto digits = [&] {
      while (end < source_.size() && is_digit(source_[end])) ++end;
    };
    digits();
    bool real = false;
    if (end + 1 < source_.size() && source_[end] == '.' && is_digit(source_[end + 1])) {
      real = true;
      ++end;
      digits();
    }
    if (end < source_.size() && (is_name_begin(source_[end]))) {
      return fail(ErrorCode::kUnsupported,
                  fmt::format("line {}: a number written like this is not supported", line_));
    }
    add(real ? TokenKind::kReal : TokenKind::kInteger, source_.substr(at_, end - at_));
    at_ = end;
    return {};
  }

  Status symbol() {
    static constexpr std::string_view kSymbols[] = {
        "//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[",
        "]",  "(",  ")",  "{",  "}",  ">",  "<", "=", ".", ":", "|", ","};
    for (const std::string_view symbol : kSymbols) {
      if (!follows(symbol, at_)) continue;
      const char c = symbol[0];
      if (c == '(' || c == '[' || c == '{') brackets_ += c == '(' ? ')' : c == '[' ? ']' : '}';
      if (c == ')' || c == ']' || c == '}') {
        if (!brackets_.ends_with(c)) return bad(fmt::format("unexpected '{}'", c));
        brackets_.pop_back();
      }
      add(TokenKind::kOperator, std::string(symbol));
      at_ += symbol.size();
      return {};
    }
    return bad(fmt::format("unexpected {}", quoted(source_.substr(at_, 1))));
  }

  Status string(char quote) {
    const int line = line_;
    std::string text;
    size_t i = at_ + 1;
    while (i < source_.size() && source_[i] != quote) {
      if (source_[i] != '\\') {
        text += source_[i++];
      } else {
        i = FERRY_TRY(escape(i + 1, text));
      }
    }
    if (i >= source_.size()) return bad("a string is not closed");
    advance(i + 1);
    tokens_.push_back({TokenKind::kString, std::move(text), line});
    return {};
  }

  // Appends the character of the escape sequence at source_[i], with the rules of Python. Returns
  // the position after the sequence.
  Result<size_t> escape(size_t i, std::string& text) {
    static constexpr std::string_view kLetters = "ntr\\'\"abfv\n",
                                      kMeanings = "\n\t\r\\'\"\a\b\f\v";
    if (i >= source_.size()) return bad("a string is not closed");
    const char c = source_[i];
    if (c == '\n') return i + 1;
    if (const size_t known = kLetters.find(c); known != std::string::npos) {
      text += kMeanings[known];
      return i + 1;
    }
    if (c >= '0' && c <= '7') return code(i, i + 3, 8, text);
    const size_t digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    if (digits > 0) return code(i + 1, i + 1 + digits, 16, text);
    if (c == 'N')
      return fail(ErrorCode::kUnsupported,
                  fmt::format("line {}: the escape \\N is not supported", line_));
    text += '\\';
    return i;
  }

  Result<size_t> code(size_t begin, size_t end, int base, std::string& text) {
    const char* const first = source_.data() + std::min(begin, source_.size());
    const char* const last = source_.data() + std::min(end, source_.size());
    uint32_t value = 0;
    const auto [rest, error] = std::from_chars(first, last, value, base);
    const bool whole =
        base == 8 || (rest == last && last - first == static_cast<std::ptrdiff_t>(end - begin));
    if (error != std::errc() || !whole || value > 0x10FFFF || (value >= 0xD800 && value < 0xE000)) {
      return bad("an escape of a string is malformed");
    }
    utf8::append(text, value);
    return static_cast<size_t>(rest - source_.data());
  }

  std::string source_;
  size_t at_ = 0;
  int line_ = 1;
  bool line_starts_ = true;  // whether the next character begins a line
  std::string brackets_;     // closing brackets that are awaited
  std::vector<Token> tokens_;
};

}  // namespace

Result<std::vector<Token>> tokenize(std::string_view source) {
  if (source.size() > kMaxTemplateBytes) {
    return bad_input(
        fmt::format("has {} bytes; the limit is {}", source.size(), kMaxTemplateBytes));
  }
  if (!utf8::is_valid(source)) return bad_input("is not UTF-8");
  return Lexer(with_unix_lines(source)).run();
}

}  // namespace ferry::text::chat
