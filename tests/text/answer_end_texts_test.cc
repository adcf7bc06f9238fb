#include "text/answer_end.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

namespace ferry::text::answer_end_texts_test {
namespace {

TEST(StopTexts, NothingOfAStopIsGivenOutAndNothingElseIsKept) {
  StopTexts stops({"\nUser:", "###"});
  EXPECT_EQ(stops.push("Hello"), "Hello");
  EXPECT_EQ(stops.push(" there\nUs"), " there");
  EXPECT_EQ(stops.push("ually #"), "\nUsually ");
  EXPECT_EQ(stops.push("#"), "");
  EXPECT_EQ(stops.found(), std::nullopt);
  EXPECT_EQ(stops.push("!\nUser"), "##!");
  EXPECT_EQ(stops.push(": more"), "");
  EXPECT_EQ(stops.found(), "\nUser:");
  EXPECT_EQ(stops.push("and more"), "");
  EXPECT_EQ(stops.finish(), "");
}

TEST(StopTexts, TheBeginningOfAStopIsTextWhereNoMoreComes) {
  StopTexts stops({"###"});
  EXPECT_EQ(stops.push("a##"), "a");
  EXPECT_EQ(stops.finish(), "##");
  EXPECT_EQ(stops.found(), std::nullopt);
}

// Finds the first stop text by the definition, one character at a time.
std::string text_before(const std::string& text, const std::vector<std::string>& stops) {
  for (size_t end = 1; end <= text.size(); ++end) {
    size_t longest = 0;
    for (const std::string& stop : stops) {
      if (text.substr(0, end).ends_with(stop)) longest = std::max(longest, stop.size());
    }
    if (longest > 0) return text.substr(0, end - longest);
  }
  return text;
}

TEST(StopTexts, TheTextDoesNotDependOnHowItIsCut) {
  std::minstd_rand bits(3);
  const auto random_text = [&](size_t length) {
    std::string text;
    for (size_t i = 0; i < length; ++i) text += static_cast<char>('a' + bits() % 3);
    return text;
  };
  size_t stopped = 0;
  for (int round = 0; round < 3000; ++round) {
    const std::string text = random_text(bits() % 30);
    std::vector<std::string> list;
    for (size_t i = 0; i < 1 + bits() % 3; ++i) list.push_back(random_text(1 + bits() % 5));
    StopTexts stops(list);
    std::string given;
    for (size_t at = 0; at < text.size();) {
      const size_t length = 1 + bits() % 4;
      given += stops.push(text.substr(at, length));
      at += length;
    }
    given += stops.finish();
    ASSERT_EQ(given, text_before(text, list)) << text;
    ASSERT_EQ(stops.found().has_value(), given != text) << text;
    stopped += stops.found() ? 1 : 0;
  }
  EXPECT_GT(stopped, 500U);
  EXPECT_LT(stopped, 2900U);
}

}  // namespace
}  // namespace ferry::text::answer_end_texts_test
