#include "core/json.h"

#include <gtest/gtest.h>

namespace ferry::json_events_test {
namespace {

using namespace std::string_view_literals;

// Records the events.
class Recorder final : public JsonHandler {
 public:
  bool null() override { return note("null"); }
  bool boolean(bool value) override { return note(value ? "true" : "false"); }
  bool number_integer(int64_t value) override { return note(std::to_string(value)); }
  bool number_unsigned(uint64_t value) override { return note(std::to_string(value)); }
  bool number_float(double, const std::string& text) override { return note(text); }
  bool string(std::string& value) override { return note("'" + value + "'"); }
  bool key(std::string& value) override { return note("'" + value + "':"); }
  std::string events;

 protected:
  bool begin_object() override { return note("{"); }
  bool close_object() override { return note("}"); }
  bool begin_array() override { return note("["); }
  bool close_array() override { return note("]"); }

 private:
  bool note(const std::string& event) {
    events += event;
    return true;
  }
};

// Returns the events, or the error, of a text that arrives in pieces of `size` bytes.
std::string parsed(std::string_view text, size_t size) {
  Recorder recorder;
  const JsonPieces next = [&]() -> Result<std::string_view> {
    const std::string_view piece = text.substr(0, size);
    text.remove_prefix(piece.size());
    return piece;
  };
  const Status status = parse_json_events(next, "f", recorder, 1000);
  return status ? recorder.events : status.error().message;
}

TEST(JsonEvents, PiecesOfAnySizeGiveTheSame) {
  struct Case {
    std::string_view text, expected;
  };
  const Case cases[] = {
      {R"( {"a" : [1, -2.5,true ,null], "b\"c":"d\\"} )"sv, R"({'a':[1-2.5truenull]'b"c':'d\'})"sv},
      {"[1,    2,\n\n\t  x]"sv, "f: not valid JSON: invalid literal (offset 1014)"sv},
      {"[\"a  b\"   ,   3"sv, "f: not valid JSON: unexpected end of input (offset 1015)"sv},
      {"[\"a\0b\"]"sv, "f: not valid JSON: NUL byte (offset 1003)"sv},
      {"{}  \0"sv, "f: not valid JSON: NUL byte (offset 1004)"sv},
      {"\xef\xbb\xbf{}"sv, "f: not valid JSON: byte order mark (offset 1000)"sv},
      {"12   34"sv, "f: not valid JSON: unexpected number literal (offset 1006)"sv},
      {""sv, "f: not valid JSON: unexpected end of input (offset 1000)"sv},
  };
  for (const Case& c : cases) {
    for (const size_t size : {3, 4, 5, 7, 1000})
      EXPECT_EQ(parsed(c.text, size), c.expected) << size;
  }
}

TEST(JsonEvents, AnErrorOfTheTextIsPassedOn) {
  Recorder recorder;
  const JsonPieces next = []() -> Result<std::string_view> {
    return fail(ErrorCode::kIo, "the disk is on fire");
  };
  const Status status = parse_json_events(next, "f", recorder);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kIo);
  EXPECT_EQ(status.error().message, "the disk is on fire");
}

TEST(JsonEvents, TokensAreBoundedAndWhiteSpaceIsNot) {
  const std::string spaces(kMaxJsonTokenBytes + 10, ' ');
  EXPECT_EQ(parsed("[" + spaces + "1" + spaces + "]" + spaces, 1 << 16), "[1]");
  const std::string digits(kMaxJsonTokenBytes + 10, '1');
  const std::string too_long = "f: not valid JSON: a string or a number that is too long (offset ";
  EXPECT_TRUE(parsed("[" + digits + "]", 1 << 16).starts_with(too_long));
  EXPECT_TRUE(parsed("[\"" + digits + "\"]", 1 << 16).starts_with(too_long));
  EXPECT_EQ(parsed("[\"" + digits.substr(20) + "\"]", 1 << 16).size(), kMaxJsonTokenBytes - 10 + 4);
}

}  // namespace
}  // namespace ferry::json_events_test
