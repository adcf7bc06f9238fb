// The hand-written word rules, compared with PCRE2 on the same regex over random Unicode text.

#include "text/tokenizer/word_rules.h"

#include <random>

#include "core/utf8.h"
#include "tests/text/tokenizer/tokenizer_testing.h"
#include "text/unicode.h"

namespace ferry::text::word_rules_test {
namespace {

// Characters that the rules distinguish are drawn far more often than by chance.
constexpr char32_t kTelling[] = {
    '\'',   's',    'S',    't',    'r',    'e',    'v',   'l',    'L',     'm',    'd',
    ' ',    ' ',    '\n',   '\r',   '\t',   0x0B,   'a',   'Z',    '0',     '7',    '.',
    '!',    '_',    0x85,   0xA0,   0x17F,  0x212A, 0xE9,  0xB2,   0x301,   0x660,  0x180E,
    0x2028, 0x200B, 0x200D, 0x3000, 0x2160, 0x20DD, 0x903, 0x4E2D, 0x1F600, 0xFEFF, 0x2019};

// The two libraries may have different versions of Unicode, so only characters are used that both
// classify alike.
class Alphabet {
 public:
  explicit Alphabet(unsigned seed) : random_(seed) {}
  char32_t next() {
    if (random_() % 4 != 0) return kTelling[random_() % std::size(kTelling)];
    while (true) {
      const auto c = static_cast<char32_t>(random_() % (random_() % 2 == 0 ? 0x3000 : 0x20000));
      if ((c < 0xD800 || c > 0xDFFF) && known(c)) return c;
    }
  }
  std::string text(size_t most) {
    std::string out;
    for (size_t i = random_() % most + 1; i > 0; --i) utf8::append(out, next());
    return out;
  }

 private:
  static bool known(char32_t c) {
    std::string text;
    utf8::append(text, c);
    static const Regex letters = *Regex::compile(R"(\p{L})", "t");
    static const Regex marks = *Regex::compile(R"(\p{M})", "t");
    static const Regex numbers = *Regex::compile(R"(\p{N})", "t");
    const auto is = [&](const Regex& regex) {
      std::vector<TextRange> found;
      EXPECT_TRUE(regex.find_all(text, found));
      return !found.empty();
    };
    const uint8_t of = unicode::class_of(c);
    return is(letters) == ((of & unicode::kLetter) != 0) &&
           is(marks) == ((of & unicode::kMark) != 0) &&
           is(numbers) == ((of & unicode::kNumber) != 0);
  }
  std::mt19937 random_;
};

std::vector<std::string> words(std::string_view text, const std::vector<TextRange>& ranges) {
  std::vector<std::string> result;
  for (const TextRange& range : ranges) {
    result.emplace_back(text.substr(range.begin, range.end - range.begin));
  }
  return result;
}

TEST(WordRules, FindWhatTheirRegexFinds) {
  Alphabet alphabet(1);
  ASSERT_EQ(word_rules().size(), 4U);
  for (const WordRule& rule : word_rules()) {
    const auto regex = Regex::compile(rule.regex, "t");
    ASSERT_TRUE(regex) << regex.error().message;
    for (int i = 0; i < 20000; ++i) {
      const std::string text = alphabet.text(24);
      std::vector<TextRange> by_rule, by_regex;
      rule.find_all(text, by_rule);
      ASSERT_TRUE(regex->find_all(text, by_regex));
      ASSERT_EQ(words(text, by_rule), words(text, by_regex)) << rule.regex;
    }
  }
}

TEST(WordRules, KnowTheirRegexOnly) {
  EXPECT_NE(find_word_rule(kGpt2Regex), nullptr);
  EXPECT_EQ(find_word_rule("\\p{L}+"), nullptr);
}

}  // namespace
}  // namespace ferry::text::word_rules_test
