// Refusals of invalid or unsupported tokenizer.json files.

#include "tests/text/tokenizer/tokenizer_testing.h"

namespace ferry::text::tokenizer_json_test {
namespace {

using nlohmann::json;

struct Change {
  const char* pointer;  // JSON pointer into small_tokenizer()
  const char* value;    // JSON text
  const char* message;  // a part of the message
};

void expect_refused(const Change& change, ErrorCode code) {
  SCOPED_TRACE(std::string(change.pointer) + " = " + change.value);
  json file = small_tokenizer();
  file[json::json_pointer(change.pointer)] = json::parse(change.value);
  const auto tokenizer = parse(file);
  ASSERT_FALSE(tokenizer);
  EXPECT_EQ(tokenizer.error().code, code);
  EXPECT_NE(tokenizer.error().message.find(change.message), std::string::npos)
      << tokenizer.error().message;
  EXPECT_EQ(tokenizer.error().message.find('\n'), std::string::npos);
}

TEST(TokenizerFile, AsksForWhatIsNotBuilt) {
  const Change changes[] = {
      {"/model/type", R"("Trigram")", "model: the type 'Trigram'"},
      {"/model/dropout", "0.1", "'dropout'"},
      {"/model/new_option", "true", "the field 'new_option'"},
      {"/something", "1", "the field 'something'"},
      {"/normalizer", R"({"type": "NFKC_Casefold"})", "normalizer: the type 'NFKC_Casefold'"},
      {"/normalizer", R"({"type": "NFC", "strength": 2})", "the field 'strength'"},
      {"/normalizer", R"({"type": "Sequence", "normalizers": [{"type": "Nope"}]})", "'Nope'"},
      {"/post_processor", R"({"type": "TemplateProcessing", "special_tokens": {},
          "single": [{"Sequence": {"id": "A", "type_id": 0}},
                     {"Sequence": {"id": "A", "type_id": 0}}]})",
       "'single' repeats the text"},
      {"/pre_tokenizer", R"({"type": "UnicodeScripts"})",
       "pre_tokenizer: the type 'UnicodeScripts'"},
      {"/pre_tokenizer",
       R"({"type": "Split", "pattern": {"Regex": "[a-z&&[^a]]"}, "behavior": "Isolated"})",
       "the regex construct '&&'"},
      {"/pre_tokenizer",
       R"({"type": "Split", "pattern": {"Regex": "[a[^b]]"}, "behavior": "Isolated"})",
       "the regex construct '[['"},
      {"/pre_tokenizer",
       R"({"type": "Split", "pattern": {"Regex": "\\h"}, "behavior": "Isolated"})", "construct"},
      {"/pre_tokenizer", R"({"type": "Split", "pattern": {"Regex": "a*"}, "behavior": "Isolated"})",
       "may match nothing"},
      {"/post_processor", R"({"type": "PairProcessing"})", "post_processor: the type"},
      {"/decoder", R"({"type": "CTC"})", "decoder: the type 'CTC'"},
  };
  for (const Change& change : changes) expect_refused(change, ErrorCode::kUnsupported);
}

// transformers sets both anew in every call.
TEST(TokenizerFile, ShortensAndFillsUpNoText) {
  json file = small_tokenizer();
  auto plain = parse(file);
  const auto ids = plain->encode("abcab", /*add_special=*/true);
  EXPECT_EQ(plain->cut(), std::nullopt);
  file["truncation"] = {{"max_length", 1}, {"strategy", "LongestFirst"}, {"stride", 0}};
  file["padding"] = {{"strategy", {{"Fixed", 128}}},
                     {"direction", "Right"},
                     {"pad_id", 0},
                     {"pad_type_id", 0},
                     {"pad_token", "a"},
                     {"pad_to_multiple_of", nullptr}};
  auto tokenizer = parse(file);
  ASSERT_TRUE(tokenizer) << tokenizer.error().message;
  EXPECT_EQ(*tokenizer->encode("abcab", /*add_special=*/true), *ids);
  EXPECT_EQ(tokenizer->cut(), Tokenizer::Cut::kEnd);
  file["truncation"]["direction"] = "Left";
  EXPECT_EQ(parse(file)->cut(), Tokenizer::Cut::kBegin);
}

TEST(TokenizerFile, ChecksHowItWouldShortenAndFillUp) {
  const Change changes[] = {
      {"/truncation", "8", "truncation: not an object"},
      {"/truncation", R"({"max_length": 8})", "'stride' is not a number"},
      {"/truncation", R"({"max_length": -1, "stride": 0, "strategy": "OnlyFirst"})",
       "'max_length'"},
      {"/truncation", R"({"max_length": 1, "stride": 0, "strategy": "Any"})",
       "the strategy 'Any' is not known"},
      {"/truncation",
       R"({"max_length": 1, "stride": 0, "strategy": "OnlyFirst", "direction": "Up"})",
       "the direction 'Up' is not known"},
      {"/padding", R"({"strategy": "BatchLongest"})", "padding: 'pad_id'"},
  };
  for (const Change& change : changes) expect_refused(change, ErrorCode::kBadInput);
  expect_refused({"/padding",
                  R"({"strategy": "BatchLongest", "pad_id": 0, "pad_type_id": 0, "pad_token": "a",
                      "colour": 1})",
                  "the field 'colour'"},
                 ErrorCode::kUnsupported);
}

TEST(TokenizerFile, PrependsWhereTheNormalizerStrips) {
  json file = small_tokenizer();
  file["pre_tokenizer"] = {
      {"type", "Metaspace"}, {"replacement", "_"}, {"prepend_scheme", "first"}};
  EXPECT_TRUE(parse(file));
  file["normalizer"] = {{"type", "Strip"}, {"strip_left", true}, {"strip_right", true}};
  EXPECT_TRUE(parse(file));
  file["added_tokens"] = {{{"id", 8}, {"content", "<x>"}, {"normalized", true}}};
  const auto tokenizer = parse(file);
  ASSERT_FALSE(tokenizer);
  EXPECT_EQ(tokenizer.error().code, ErrorCode::kUnsupported);
}

TEST(TokenizerFile, IsMalformed) {
  const Change changes[] = {
      {"/model", "7", "model: not an object"},
      {"/model", R"({"type": "BPE"})", "'vocab' or 'merges' is missing"},
      {"/model/vocab", "{}", "'unk_token' '?' is not in the vocabulary"},
      {"/model/vocab/a", "-1", "not a number of a token"},
      {"/model/vocab/a", "1.5", "not a number of a token"},
      {"/model/vocab/a", R"({"x": 1})", "not a number of a token"},
      {"/model/vocab/a", "4194304", "the id 4194304 is beyond"},
      {"/model/vocab/a", "2", "have the id 2"},
      {"/model/merges/0", R"("ab")", "model.merges: number 0"},
      {"/model/merges/0", R"("a b c")", "model.merges: number 0"},
      {"/model/merges/0", R"(["a", "b", "c"])", "model.merges: number 0"},
      {"/model/merges/0", R"(["a"])", "model.merges: number 0"},
      {"/model/merges/0", R"(["a", ["b"]])", "model.merges: number 0"},
      {"/model/merges/1", R"("ab b")", "needs 'abb'"},
      {"/model/merges/1", R"("x b")", "needs 'x'"},
      {"/model/byte_fallback", "1", "'byte_fallback' is not true or false"},
      {"/model/unk_token", R"("<unk>")", "'<unk>' is not in the vocabulary"},
      {"/added_tokens", "{}", "added_tokens: not a list"},
      {"/added_tokens", R"([{"id": 8}])", "'content' is missing"},
      {"/added_tokens", R"([{"id": 8, "content": ""}])", "'content' is empty"},
      {"/added_tokens", R"([{"id": 9, "content": "<s>"}])", "the id 9, expected 8"},
      {"/added_tokens", R"([{"id": 8, "content": "a"}])", "the id 8, expected 1"},
      {"/added_tokens", R"([{"id": -8, "content": "<s>"}])", "'id'"},
      {"/added_tokens", R"([{"id": 1, "content": "a"}, {"id": 1, "content": "a"}])", "twice"},
      {"/normalizer", R"({"type": "Replace", "pattern": {"String": ""}, "content": "x"})", "empty"},
      {"/normalizer", R"({"type": "Replace", "pattern": {"String": " "}})", "'content'"},
      {"/normalizer", R"({"type": "Prepend"})", "'prepend' is missing"},
      {"/normalizer", R"("NFC")", "not an object"},
      {"/pre_tokenizer", R"({"type": "Split", "pattern": {"Regex": "a(b"}, "behavior": "Removed"})",
       "regex"},
      {"/pre_tokenizer", R"({"type": "Split", "pattern": {"String": "a"}, "behavior": "Upended"})",
       "'Upended'"},
      {"/pre_tokenizer", R"({"type": "Metaspace", "replacement": "__"})", "'replacement'"},
      {"/pre_tokenizer", R"({"type": "Metaspace", "replacement": "_", "prepend_scheme": "first",
                             "add_prefix_space": false})",
       "'add_prefix_space' does not match"},
      {"/post_processor", R"({"type": "TemplateProcessing", "special_tokens": {},
          "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}]})",
       "lacks '<s>'"},
      {"/post_processor", R"({"type": "TemplateProcessing", "special_tokens": {},
          "single": [{"Sequence": {"id": "B", "type_id": 0}}]})",
       "sequence 'B'"},
      {"/decoder", R"({"type": "Strip", "content": "ab", "start": 1, "stop": 0})", "'content'"},
      {"/decoder", R"({"type": "Strip", "content": " ", "start": -1, "stop": 0})", "'start'"},
  };
  for (const Change& change : changes) expect_refused(change, ErrorCode::kBadInput);
}

TEST(TokenizerFile, HasAKeyTwice) {
  std::string text = small_tokenizer().dump();
  for (const char* twice : {R"("a":1)", R"("version":"1.0")", R"("byte_fallback":false)"}) {
    std::string bad = text;
    const size_t at = bad.find(twice);
    ASSERT_NE(at, std::string::npos);
    bad.insert(at, std::string(twice) + ",");
    const auto tokenizer = Tokenizer::parse(bad, "t");
    ASSERT_FALSE(tokenizer) << twice;
    EXPECT_EQ(tokenizer.error().code, ErrorCode::kBadInput);
    EXPECT_NE(tokenizer.error().message.find("twice"), std::string::npos);
  }
}

TEST(TokenizerFile, NestsWithoutEnd) {
  json step = {{"type", "NFC"}};
  for (int i = 0; i < 20; ++i) step = {{"type", "Sequence"}, {"normalizers", {step}}};
  expect_refused({"/normalizer", step.dump().c_str(), "nested too deeply"}, ErrorCode::kBadInput);
}

TEST(TokenizerFile, MakesTextsGrowWithoutEnd) {
  json file = small_tokenizer();
  const json doubling = {
      {"type", "Replace"}, {"pattern", {{"String", "a"}}}, {"content", "aaaaaaaaaaaaaaaa"}};
  file["normalizer"] = {{"type", "Sequence"}, {"normalizers", std::vector<json>(40, doubling)}};
  auto tokenizer = parse(file);
  ASSERT_TRUE(tokenizer);
  const auto ids = tokenizer->encode("a", false);
  ASSERT_FALSE(ids);
  EXPECT_EQ(ids.error().code, ErrorCode::kBadInput);
}

// A regex whose time grows exponentially ends with an error.
TEST(TokenizerFile, HasARegexThatNeverEnds) {
  json file = small_tokenizer();
  file["pre_tokenizer"] = {{"type", "Split"},
                           {"pattern", {{"Regex", "(a+)+(a+)+(a+)+(a+)+c"}}},
                           {"behavior", "Isolated"}};
  auto tokenizer = parse(file);
  ASSERT_TRUE(tokenizer) << tokenizer.error().message;
  const auto ids = tokenizer->encode(std::string(60, 'a') + "bc", false);
  ASSERT_FALSE(ids);
  EXPECT_EQ(ids.error().code, ErrorCode::kBadInput);
  EXPECT_NE(ids.error().message.find("limit"), std::string::npos) << ids.error().message;
}

TEST(Tokenizer, RefusesTextThatIsNotUtf8) {
  auto tokenizer = parse(small_tokenizer());
  ASSERT_TRUE(tokenizer);
  for (const char* text : {"\xff", "a\xC3", "\xED\xA0\x80", "\xC0\x80"}) {
    EXPECT_FALSE(tokenizer->encode(text, false));
  }
}

}  // namespace
}  // namespace ferry::text::tokenizer_json_test
