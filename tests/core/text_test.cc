#include "core/text.h"

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

namespace ferry::text_test {
namespace {

TEST(Text, QuotedEscapesWhatCouldDeceive) {
  struct Case {
    std::string raw, shown;
  };
  const Case cases[] = {
      {"model.norm.weight", "'model.norm.weight'"},
      {"", "''"},
      {"a'b\\c", "'a\\'b\\\\c'"},
      {"line\nbreak\ttab", "'line\\nbreak\\ttab'"},
      {std::string("nul\0esc\x1b[31m", 12), "'nul\\x00esc\\x1b[31m'"},
      {"é中😀", "'é中😀'"},
      {"\xff\xc0\xaf", "'\\xff\\xc0\\xaf'"},
      {"\xed\xa0\x80", "'\\xed\\xa0\\x80'"},  // a surrogate
      {"\xe2\x80\xae", "'\\u{202e}'"},        // right-to-left override
      {"\xf0\x9f\x98", "'\\xf0\\x9f\\x98'"},  // cut short
      {"\xc2\x9b", "'\\u{9b}'"},              // a control character of Latin-1
  };
  for (const Case& c : cases) EXPECT_EQ(quoted(c.raw), c.shown);
}

TEST(Text, QuotedIsShortAndClosed) {
  const std::string shown = quoted(std::string(100000, '\x01'));
  EXPECT_LE(shown.size(), 210u);
  EXPECT_EQ(shown.substr(shown.size() - 4), "...'");
}

TEST(Text, PrintableKeepsThePathWhole) {
  const std::string path(300, 'a');
  EXPECT_EQ(printable(path), path);
  EXPECT_EQ(printable("a\nb"), "a\\nb");
}

TEST(Text, BaseName) {
  EXPECT_EQ(base_name("/a/b.txt"), "b.txt");
  EXPECT_EQ(base_name("b.txt"), "b.txt");
  EXPECT_EQ(base_name("a/b/"), "b");
  EXPECT_EQ(base_name("/"), "/");
}

TEST(Text, HumanBytesUsesDecimalUnits) {
  EXPECT_EQ(human_bytes(0), "0 B");
  EXPECT_EQ(human_bytes(999), "999 B");
  EXPECT_EQ(human_bytes(1000), "1.00 kB");
  EXPECT_EQ(human_bytes(999'999), "1.00 MB");
  EXPECT_EQ(human_bytes(1'190'000'000), "1.19 GB");
  EXPECT_EQ(human_bytes(UINT64_MAX), "18.45 EB");
}

TEST(Text, GlobMatchesTheWholeText) {
  EXPECT_TRUE(glob_match("*", ""));
  EXPECT_TRUE(glob_match("model.*.weight", "model.layers.0.weight"));
  EXPECT_TRUE(glob_match("a?c", "abc"));
  EXPECT_TRUE(glob_match("*a*b*", "xxaxxbxx"));
  EXPECT_FALSE(glob_match("a?c", "ac"));
  EXPECT_FALSE(glob_match("model", "model.x"));
  EXPECT_FALSE(glob_match("*.bias", "x.bias.y"));
  EXPECT_FALSE(glob_match("", "a"));
}

TEST(Text, GlobOfManyStarsIsFast) {
  std::string pattern;
  for (int i = 0; i < 50; ++i) pattern += "*a";
  EXPECT_FALSE(glob_match(pattern + "b", std::string(5000, 'a')));
}

TEST(Text, HexadecimalDigitsAreLowerCaseAndInPairs) {
  EXPECT_EQ(from_hex("00ff7f"), std::string("\x00\xff\x7f", 3));
  EXPECT_EQ(from_hex(""), "");
  for (const char* wrong : {"f", "FF", "0g", "0x", " 0", "-1"})
    EXPECT_EQ(from_hex(wrong), std::nullopt);
}

TEST(Text, NumberAfterAPrefix) {
  EXPECT_EQ(number_after("hidden_states.3", "hidden_states."), 3);
  EXPECT_EQ(number_after("hidden_states.", "hidden_states."), std::nullopt);
  EXPECT_EQ(number_after("hidden_states.3a", "hidden_states."), std::nullopt);
  EXPECT_EQ(number_after("hidden_states.99999999999999999999", "hidden_states."), std::nullopt);
  EXPECT_EQ(number_after("cache.3", "hidden_states."), std::nullopt);
}

}  // namespace
}  // namespace ferry::text_test
