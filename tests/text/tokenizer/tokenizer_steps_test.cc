// Single steps, on a vocabulary so small that their results are easy to see. The expected values
// follow from the definition of each step. tokenizer_golden_test.cc has values of the tokenizers
// library.

#include "tests/text/tokenizer/tokenizer_testing.h"

namespace ferry::text::tokenizer_steps_test {
namespace {

using nlohmann::json;
using Ids = std::vector<int64_t>;

// The ids are: ? 0, a 1, b 2, c 3, blank 4, ab 5, abc 6, A 7.

TEST(Bpe, MergesTheLowestRankFirst) {
  const json file = small_tokenizer();
  EXPECT_EQ(encode(file, "abc"), (Ids{6}));
  EXPECT_EQ(encode(file, "ab c"), (Ids{5, 4, 3}));
  EXPECT_EQ(encode(file, "bab"), (Ids{2, 5}));
  EXPECT_EQ(encode(file, ""), Ids{});
}

TEST(Bpe, UnknownCharacters) {
  json file = small_tokenizer();
  EXPECT_EQ(encode(file, "xya"), (Ids{0, 0, 1}));
  file["model"]["fuse_unk"] = true;
  EXPECT_EQ(encode(file, "xyaz"), (Ids{0, 1, 0}));
  file["model"]["unk_token"] = nullptr;
  EXPECT_EQ(encode(file, "axb"), (Ids{5}));  // x is left out, and its neighbours are merged
}

TEST(Bpe, IgnoreMergesTakesAWholeWord) {
  json file = small_tokenizer();
  file["model"]["vocab"]["cab"] = 8;
  EXPECT_EQ(encode(file, "cab"), (Ids{3, 5}));
  file["model"]["ignore_merges"] = true;
  EXPECT_EQ(encode(file, "cab"), (Ids{8}));
}

TEST(Bpe, ByteFallbackIsAllOrNothing) {
  json file = small_tokenizer();
  file["model"]["byte_fallback"] = true;
  file["model"]["vocab"]["<0xC3>"] = 8;
  EXPECT_EQ(encode(file, "\xC3\xA9"), (Ids{0}));
  file["model"]["vocab"]["<0xA9>"] = 9;
  EXPECT_EQ(encode(file, "a\xC3\xA9"), (Ids{1, 8, 9}));
}

// Long words are merged with a heap, short ones with a scan.
TEST(Bpe, LongAndShortWordsAreEncodedAlike) {
  json file = small_tokenizer();
  Ids expected;
  std::string text;
  for (int i = 0; i < 500; ++i) {
    text += "abcaab";
    expected.insert(expected.end(), {6, 1, 5});
  }
  EXPECT_EQ(encode(file, text), expected);
}

json added(const char* content, const json& more = json::object()) {
  json token = {{"id", 8}, {"content", content}, {"special", true}, {"normalized", false}};
  token.update(more);
  return json::array({token});
}

TEST(AddedTokens, AreFoundAnywhere) {
  json file = small_tokenizer();
  file["added_tokens"] = added("<x>");
  EXPECT_EQ(encode(file, "a<x>b<x>"), (Ids{1, 8, 2, 8}));
  file["added_tokens"].push_back({{"id", 9}, {"content", "<x>a"}, {"normalized", false}});
  EXPECT_EQ(encode(file, "a<x>ab<x"), (Ids{1, 9, 2, 0, 0}));  // the longest match
}

TEST(AddedTokens, TakeBlanksAlong) {
  json file = small_tokenizer();
  file["added_tokens"] = added("<x>", {{"lstrip", true}});
  EXPECT_EQ(encode(file, "a  <x> b"), (Ids{1, 8, 4, 2}));
  file["added_tokens"] = added("<x>", {{"rstrip", true}});
  EXPECT_EQ(encode(file, "a <x>  b"), (Ids{1, 4, 8, 2}));
}

TEST(AddedTokens, SingleWordsAreNotPartsOfWords) {
  json file = small_tokenizer();
  file["added_tokens"] = added("ab", {{"single_word", true}, {"id", 5}});
  file["model"]["merges"] = json::array();
  EXPECT_EQ(encode(file, "ab c"), (Ids{5, 4, 3}));
  EXPECT_EQ(encode(file, "abc"), (Ids{1, 2, 3}));
  EXPECT_EQ(encode(file, "cab"), (Ids{3, 1, 2}));
}

TEST(AddedTokens, NormalizedOnesAreFoundInNormalizedText) {
  json file = small_tokenizer();
  file["normalizer"] = {{"type", "Lowercase"}};
  file["added_tokens"] = added("CC", {{"normalized", true}});
  EXPECT_EQ(encode(file, "aCCb cCa"), (Ids{1, 8, 2, 4, 8, 1}));
  file["added_tokens"] = added("CC");
  EXPECT_EQ(encode(file, "aCCb cCa"), (Ids{1, 8, 2, 4, 3, 3, 1}));
}

struct Normalization {
  const char* step;
  const char* text;
  Ids ids;
};

TEST(Normalizer, Steps) {
  const Normalization cases[] = {
      {R"({"type": "Lowercase"})", "Ab", {5}},
      {R"({"type": "Strip", "strip_left": true, "strip_right": false})", "  a ", {1, 4}},
      {R"({"type": "Strip", "strip_left": false, "strip_right": true})", " a  ", {4, 1}},
      {R"({"type": "Prepend", "prepend": "b"})", "a", {2, 1}},
      {R"({"type": "Prepend", "prepend": "b"})", "", {}},
      {R"({"type": "Replace", "pattern": {"String": "xy"}, "content": "ab"})", "xyxxy", {5, 0, 5}},
      {R"({"type": "Replace", "pattern": {"Regex": "\\s+"}, "content": " "})",
       "a  \n b",
       {1, 4, 2}},
      {R"({"type": "NFKC"})", "\xEF\xBD\x81\xEF\xBD\x82", {5}},  // full-width letters
  };
  for (const auto& [step, text, ids] : cases) {
    json file = small_tokenizer();
    file["normalizer"] = json::parse(step);
    EXPECT_EQ(encode(file, text), ids) << step;
  }
}

// abc would be one token, so the result shows where the text was split.
TEST(PreTokenizer, SplitBehaviors) {
  const std::pair<const char*, Ids> cases[] = {
      {"Removed", {1, 3, 1}},
      {"Isolated", {1, 2, 2, 3, 2, 1}},
      {"MergedWithPrevious", {5, 2, 3, 2, 1}},
      {"MergedWithNext", {1, 2, 2, 3, 2, 1}},
      {"Contiguous", {1, 2, 2, 3, 2, 1}},
  };
  for (const auto& [behavior, ids] : cases) {
    json file = small_tokenizer();
    file["pre_tokenizer"] = {
        {"type", "Split"}, {"pattern", {{"String", "b"}}}, {"behavior", behavior}};
    EXPECT_EQ(encode(file, "abbcba"), ids) << behavior;
  }
}

TEST(PreTokenizer, Metaspace) {
  json file = small_tokenizer();
  file["model"]["vocab"]["\xE2\x96\x81"] = 8;
  file["added_tokens"] = json::array({{{"id", 9}, {"content", "<x>"}, {"normalized", false}}});
  const auto with = [&](const char* scheme, const char* text) {
    file["pre_tokenizer"] = {{"type", "Metaspace"},
                             {"replacement", "\xE2\x96\x81"},
                             {"prepend_scheme", scheme},
                             {"split", true}};
    return encode(file, text);
  };
  EXPECT_EQ(with("always", "ab<x>ab c"), (Ids{8, 5, 9, 8, 5, 8, 3}));
  EXPECT_EQ(with("first", "ab<x>ab c"), (Ids{8, 5, 9, 5, 8, 3}));
  EXPECT_EQ(with("never", "ab<x>ab c"), (Ids{5, 9, 5, 8, 3}));
  EXPECT_EQ(with("always", " ab"), (Ids{8, 5}));
}

TEST(Decoder, ByteFallbackGivesOneReplacementForEachByte) {
  json file = small_tokenizer();
  file["model"]["vocab"].update({{"<0xC3>", 8}, {"<0xA9>", 9}});
  file["decoder"] = {{"type", "ByteFallback"}};
  const auto tokenizer = parse(file);
  ASSERT_TRUE(tokenizer);
  EXPECT_EQ(*tokenizer->decode(Ids{1, 8, 9, 2}, false),
            "a\xC3\xA9"
            "b");
  EXPECT_EQ(*tokenizer->decode(Ids{8, 8, 9}, false), "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD");
}

// The reference does so since 0.23, where a normalized special token is no longer special.
TEST(Decoder, WritesNormalizedTokensNormalized) {
  json file = small_tokenizer();
  file["normalizer"] = {{"type", "Lowercase"}};
  file["added_tokens"] =
      json::array({{{"id", 8}, {"content", "<X>"}, {"normalized", true}, {"special", true}},
                   {{"id", 9}, {"content", "<Y>"}, {"normalized", false}, {"special", true}}});
  const auto tokenizer = parse(file);
  ASSERT_TRUE(tokenizer);
  EXPECT_EQ(*tokenizer->decode(Ids{8, 9, 1}, false), "<x><Y>a");
  EXPECT_EQ(*tokenizer->decode(Ids{8, 9, 1}, true), "<x>a");
}

TEST(PreTokenizer, WordCharactersAreThoseOfTheReference) {
  json file = small_tokenizer();
  file["model"]["fuse_unk"] = true;
  file["pre_tokenizer"] = {
      {"type", "Split"}, {"pattern", {{"Regex", "\\w+"}}}, {"behavior", "Isolated"}};
  // A half with a mark is a word character, and so is a roman numeral. The sign is not.
  EXPECT_EQ(encode(file, "x\xC2\xBD\xCC\x81\xE2\x85\xA7"), (Ids{0}));
  EXPECT_EQ(encode(file, "x\xC3\x97x"), (Ids{0, 0, 0}));
  // In a character class a half is no word character, so it is in one piece with the sign.
  file["pre_tokenizer"]["pattern"]["Regex"] = "[^\\w]+";
  EXPECT_EQ(encode(file, "x\xC3\x97\xC2\xBD"), (Ids{0, 0}));
}

TEST(Decoder, WithoutAnyTextsAreJoinedByBlanks) {
  json file = small_tokenizer();
  file["decoder"] = nullptr;
  const auto tokenizer = parse(file);
  ASSERT_TRUE(tokenizer);
  EXPECT_EQ(*tokenizer->decode(Ids{1, 99, 6}, false), "a abc");  // no token has the id 99
}

}  // namespace
}  // namespace ferry::text::tokenizer_steps_test
