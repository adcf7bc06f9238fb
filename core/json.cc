#include "core/json.h"

#include <fmt/format.h>

#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "core/json_tree.h"
#include "core/text.h"

namespace ferry {
namespace {

using nlohmann::json;

class DocumentBuilder final : public JsonHandler {
 public:
  bool null() override { return add(nullptr); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(int64_t value) override { return add(value); }
  bool number_unsigned(uint64_t value) override { return add(value); }
  bool number_float(double value, const std::string&) override { return add(value); }
  bool string(std::string& value) override { return add(std::move(value)); }

  bool key(std::string& value) override {
    if (tree_.set_key(std::move(value))) return true;
    return refuse(fmt::format("the key {} is there twice", quoted(tree_.key())));
  }

  json take() { return tree_.take(); }

 protected:
  bool begin_object() override { return open(json::object()); }
  bool begin_array() override { return open(json::array()); }
  bool close_object() override { return close(); }
  bool close_array() override { return close(); }

 private:
  template <class T>
  bool add(T&& value) {
    tree_.add(json(std::forward<T>(value)));
    return true;
  }

  bool open(json container) {
    tree_.open(std::move(container));
    return true;
  }

  bool close() {
    tree_.close();
    return true;
  }

  JsonTree tree_;
};

}  // namespace

Result<json> parse_json(std::string_view text, const std::string& name) {
  DocumentBuilder builder;
  FERRY_RETURN_IF_ERROR(parse_json_events(text, name, builder));
  return builder.take();
}

namespace {

constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";

bool is_space(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }
bool is_structural(char c) {
  return c == ',' || c == ':' || c == '{' || c == '}' || c == '[' || c == ']';
}

// The characters of a text that arrives in pieces. Only the first of several white space characters
// between tokens is passed on, because the library keeps a copy of them and a padded header may
// have 100 MB. A NUL byte, which the library takes for the end, a byte order mark, which it skips,
// and a token that is too long end the text with a problem.
class TextStream {
 public:
  TextStream(const JsonPieces& next, uint64_t base_offset)
      : next_(next), base_offset_(base_offset) {}

  // Returns false at the end and after a problem.
  bool has_char();
  char current() const { return piece_[at_]; }
  void advance();

  uint64_t offset_of(size_t position) const { return base_offset_ + position + skipped_; }
  // Returns the reason why the text ended early, if it did. The parser saw a regular end then.
  std::optional<Error> take_problem(const std::string& name) const;

 private:
  bool fetch();
  bool end_with(std::string_view what);

  const JsonPieces& next_;
  uint64_t base_offset_;
  std::string_view piece_;
  size_t at_ = 0;             // position in piece_
  uint64_t before_ = 0;       // bytes of the pieces before piece_
  uint64_t skipped_ = 0;      // bytes of white space that were not passed on
  uint64_t token_bytes_ = 0;  // bytes of the current token
  bool in_string_ = false, escaped_ = false, after_space_ = false, ended_ = false;
  std::string_view what_;  // the problem at problem_at_
  uint64_t problem_at_ = 0;
  std::optional<Error> error_;  // the error that next_ returned
};

bool TextStream::end_with(std::string_view what) {
  what_ = what;
  problem_at_ = base_offset_ + before_ + at_;
  ended_ = true;
  return false;
}

bool TextStream::fetch() {
  if (ended_) return false;
  before_ += piece_.size();
  at_ = 0;
  piece_ = {};
  Result<std::string_view> next = next_();
  if (!next) {
    error_ = std::move(next).error();
    ended_ = true;
  } else if (next->empty()) {
    ended_ = true;
  } else {
    piece_ = *next;
    if (before_ == 0 && piece_.starts_with(kByteOrderMark)) return end_with("byte order mark");
  }
  return !ended_;
}

bool TextStream::has_char() {
  while (!ended_) {
    if (at_ == piece_.size() && !fetch()) return false;
    const char c = piece_[at_];
    if (c == '\0') return end_with("NUL byte");
    if (token_bytes_ > kMaxJsonTokenBytes) return end_with("a string or a number that is too long");
    if (in_string_ || !after_space_ || !is_space(c)) return true;
    const size_t begin = at_;
    while (at_ < piece_.size() && is_space(piece_[at_])) ++at_;
    skipped_ += at_ - begin;
  }
  return false;
}

void TextStream::advance() {
  const char c = piece_[at_++];
  ++token_bytes_;
  if (in_string_) {
    if (c == '"' && !escaped_) in_string_ = false;
    escaped_ = c == '\\' && !escaped_;
    return;
  }
  after_space_ = is_space(c);
  in_string_ = c == '"';
  if (in_string_ || after_space_ || is_structural(c)) token_bytes_ = 0;
}

std::optional<Error> TextStream::take_problem(const std::string& name) const {
  if (error_) return error_;
  if (what_.empty()) return std::nullopt;
  return Error{ErrorCode::kBadInput,
               fmt::format("{}: not valid JSON: {} (offset {})", name, what_, problem_at_)};
}

// The iterator that the library reads its input with. All copies are at the position of the stream.
struct TextIterator {
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = char;

  char operator*() const { return stream->current(); }
  TextIterator& operator++() {
    stream->advance();
    return *this;
  }
  // The library compares an iterator only with the end.
  bool operator==(const TextIterator&) const { return !stream->has_char(); }

  TextStream* stream;
};

// Extracts the reason from a message of the library, because the rest quotes the input: "... -
// invalid literal; last read: ..." becomes "invalid literal".
std::string reason_of(const nlohmann::json::exception& error) {
  const std::string_view what = error.what();
  const size_t dash = what.find(" - ");
  if (dash == std::string_view::npos) return error.id == 406 ? "number out of range" : "malformed";
  const std::string_view reason = what.substr(dash + 3);
  return std::string(reason.substr(0, reason.find(';')));
}

}  // namespace

// The library calls these functions; they pass its events on to a handler.
class JsonEvents {
 public:
  JsonEvents(JsonHandler& handler, const TextStream& stream) : handler_(handler), stream_(stream) {}

  bool null() { return handler_.null(); }
  bool boolean(bool value) { return handler_.boolean(value); }
  bool number_integer(int64_t value) { return handler_.number_integer(value); }
  bool number_unsigned(uint64_t value) { return handler_.number_unsigned(value); }
  bool number_float(double value, const std::string& text) {
    return handler_.number_float(value, text);
  }
  bool string(std::string& value) { return handler_.string(value); }
  bool key(std::string& value) { return handler_.key(value); }
  bool binary(nlohmann::json::binary_t&) { return handler_.refuse("binary value"); }

  bool start_object(size_t) { return handler_.enter() && handler_.begin_object(); }
  bool start_array(size_t) { return handler_.enter() && handler_.begin_array(); }
  bool end_object() {
    --handler_.depth_;
    return handler_.close_object();
  }
  bool end_array() {
    --handler_.depth_;
    return handler_.close_array();
  }

  bool parse_error(size_t position, const std::string&, const nlohmann::json::exception& error) {
    // `position` counts the characters that were read, including the offending one.
    const uint64_t offset = stream_.offset_of(position == 0 ? 0 : position - 1);
    return handler_.refuse(fmt::format("not valid JSON: {} (offset {})", reason_of(error), offset));
  }

  const std::string& error() const { return handler_.error_; }

 private:
  JsonHandler& handler_;
  const TextStream& stream_;
};

bool JsonHandler::enter() {
  return ++depth_ <= kMaxJsonDepth || refuse(fmt::format("nested deeper than {}", kMaxJsonDepth));
}

bool JsonHandler::refuse(std::string message) {
  if (error_.empty()) error_ = std::move(message);
  return false;
}

Status parse_json_events(const JsonPieces& next, const std::string& name, JsonHandler& handler,
                         uint64_t base_offset) {
  TextStream stream(next, base_offset);
  JsonEvents events(handler, stream);
  const bool parsed =
      nlohmann::json::sax_parse(TextIterator{&stream}, TextIterator{&stream}, &events);
  if (auto problem = stream.take_problem(name)) return Failure(*std::move(problem));
  if (parsed) return {};
  return bad_input(name + ": " + events.error());
}

Status parse_json_events(std::string_view text, const std::string& name, JsonHandler& handler,
                         uint64_t base_offset) {
  const JsonPieces whole = [&]() -> Result<std::string_view> {
    return std::exchange(text, std::string_view());
  };
  return parse_json_events(whole, name, handler, base_offset);
}

}  // namespace ferry
