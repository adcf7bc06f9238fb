// Refusals of invalid Unigram, WordPiece and WordLevel models, and of their steps.

#include "tests/text/tokenizer/tokenizer_testing.h"

namespace ferry::text::sentencepiece_model_test {
namespace {

using nlohmann::json;

json with_model(const char* model) {
  json file = small_tokenizer();
  file["model"] = json::parse(model);
  return file;
}

void expect_bad(const json& file, const std::string& message) {
  SCOPED_TRACE(message);
  const auto tokenizer = parse(file);
  ASSERT_FALSE(tokenizer);
  EXPECT_EQ(tokenizer.error().code, ErrorCode::kBadInput);
  EXPECT_NE(tokenizer.error().message.find(message), std::string::npos)
      << tokenizer.error().message;
}

TEST(TokenizerModel, IsMalformed) {
  const std::pair<const char*, const char*> models[] = {
      {R"({"type": "Unigram", "unk_id": 0, "vocab": {"a": 0}})",
       "not a list of tokens with scores"},
      {R"({"type": "Unigram", "unk_id": 2, "vocab": [["a", 0], ["b", -1.5]]})", "'unk_id'"},
      {R"({"type": "Unigram", "unk_id": 0, "vocab": []})", "'unk_id'"},
      {R"({"type": "Unigram", "unk_id": 0, "vocab": [["a"]]})", "number 0 is not a token"},
      {R"({"type": "Unigram", "unk_id": 0, "vocab": [["a", 1], ["b", 1, 2]]})", "number 2"},
      {R"({"type": "Unigram", "unk_id": 0, "vocab": [[1, "a"]]})", "number 0 is not a token"},
      {R"({"type": "Unigram", "unk_id": 0, "vocab": ["a"]})", "number 0 is not a token"},
      {R"({"type": "Unigram", "unk_id": 0, "vocab": [1]})", "number 0 is not a token"},
      {R"({"type": "Unigram", "unk_id": 0, "vocab": [["a", 0], ["a", 0]]})", "is there twice"},
      {R"({"type": "WordPiece", "unk_token": "?", "continuing_subword_prefix": "##",
           "max_input_chars_per_word": 9, "vocab": {"a": 0}})",
       "'unk_token' '?' is not in the vocabulary"},
      {R"({"type": "WordPiece", "unk_token": "a", "continuing_subword_prefix": "##",
           "max_input_chars_per_word": -1, "vocab": {"a": 0}})",
       "'max_input_chars_per_word'"},
      {R"({"type": "WordPiece", "unk_token": "a", "max_input_chars_per_word": 9,
           "vocab": {"a": 0}})",
       "'continuing_subword_prefix' is missing"},
      {R"({"type": "WordLevel", "vocab": {"a": 0}})", "'unk_token' is missing"},
  };
  for (const auto& [model, message] : models) expect_bad(with_model(model), message);
}

// The reference fails at such a text too.
TEST(TokenizerModel, NeedsAnUnknownTokenThatItLacks) {
  const char* models[] = {
      R"({"type": "Unigram", "unk_id": null, "vocab": [["a", 0]]})",
      R"({"type": "WordLevel", "unk_token": "?", "vocab": {"a": 0}})",
  };
  for (const char* model : models) {
    auto tokenizer = parse(with_model(model));
    ASSERT_TRUE(tokenizer) << tokenizer.error().message;
    EXPECT_TRUE(tokenizer->encode("a", false));
    const auto ids = tokenizer->encode("b", false);
    ASSERT_FALSE(ids);
    EXPECT_EQ(ids.error().code, ErrorCode::kBadInput);
  }
}

// Older files do not state the type of the model.
TEST(TokenizerModel, IsKnownByItsFields) {
  EXPECT_EQ(
      encode(with_model(R"({"unk_id": 0, "vocab": [["?", 0], ["a", -1], ["aa", -1]]})"), "aab"),
      (std::vector<int64_t>{2, 0}));
  EXPECT_EQ(encode(with_model(R"({"unk_token": "?", "continuing_subword_prefix": "##",
                                  "max_input_chars_per_word": 3,
                                  "vocab": {"?": 0, "a": 1, "##a": 2}})"),
                   "aa"),
            (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(encode(with_model(R"({"unk_token": "?", "vocab": {"?": 0, "aa": 1}})"), "aa"),
            std::vector<int64_t>{1});
}

// With a cost that grows with the square of the length this would take minutes.
TEST(TokenizerModel, IsLinearInTheText) {
  json unigram = with_model(R"({"type": "Unigram", "unk_id": 0,
      "vocab": [["?", 0], ["a", -1], ["aa", -1.5], ["aaaaaaaa", -2]]})");
  EXPECT_EQ(encode(unigram, std::string(1 << 20, 'a')).size(), size_t{1} << 17);
  EXPECT_EQ(encode(unigram, std::string(1 << 20, 'b')), std::vector<int64_t>{0});
  const json pieces = with_model(R"({"type": "WordPiece", "unk_token": "?",
      "continuing_subword_prefix": "", "max_input_chars_per_word": 100000000,
      "vocab": {"?": 0, "a": 1, "aaaa": 2}})");
  EXPECT_EQ(encode(pieces, std::string(1 << 20, 'a')).size(), size_t{1} << 18);
}

// -- precompiled_charsmap

json with_charsmap(const std::string& base64) {
  json file = small_tokenizer();
  file["normalizer"] = {{"type", "Precompiled"}, {"precompiled_charsmap", base64}};
  return file;
}

TEST(Charsmap, IsMalformed) {
  const std::pair<const char*, const char*> maps[] = {
      {"", "shorter than 4 bytes"},
      {"AAA=", "shorter than 4 bytes"},
      {"AAAAAA==", "size of the trie"},
      {"BQAAAAAAAAA=", "size of the trie"},
      {"CAAAAAAAAAA=", "size of the trie"},
      {"BAAAAAAAAAD/", "not valid UTF-8"},
      {"?", "not base64"},
  };
  for (const auto& [map, message] : maps) expect_bad(with_charsmap(map), message);
}

// The array has one unit, whose children are far behind its end.
TEST(Charsmap, LeadsOutOfItself) {
  auto tokenizer = parse(with_charsmap("BAAAAAAA/3+A"));
  ASSERT_FALSE(tokenizer);  // the byte after the trie belongs to no text
  tokenizer = parse(with_charsmap("BAAAAAAA/38A"));
  ASSERT_TRUE(tokenizer) << tokenizer.error().message;
  const auto ids = tokenizer->encode("a", false);
  ASSERT_FALSE(ids);
  EXPECT_NE(ids.error().message.find("leads out of the map"), std::string::npos);
}

}  // namespace
}  // namespace ferry::text::sentencepiece_model_test
