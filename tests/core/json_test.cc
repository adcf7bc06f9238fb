#include "core/json.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "core/json_writer.h"

namespace ferry::json_test {
namespace {

std::string message_of(std::string_view text) {
  const auto result = parse_json(text, "f.json");
  return result ? "accepted" : result.error().message;
}

TEST(Json, KeepsIntegersExact) {
  const auto doc =
      parse_json(R"([18446744073709551615, -9223372036854775808, 9007199254740993])", "f");
  ASSERT_TRUE(doc);
  EXPECT_EQ((*doc)[0].get<uint64_t>(), UINT64_MAX);
  EXPECT_EQ((*doc)[1].get<int64_t>(), INT64_MIN);
  EXPECT_EQ((*doc)[2].get<uint64_t>(), 9007199254740993u);
}

TEST(Json, IntegersBeyond64BitsAreFloats) {
  const auto doc = parse_json("18446744073709551616", "f");
  ASSERT_TRUE(doc);
  EXPECT_TRUE(doc->is_number_float());
}

TEST(Json, BuildsTheSameDocumentAsTheLibrary) {
  const std::string text =
      R"( {"a": [1, -2.5, true, null, "x\u00e9"], "b": {"c": {}, "d": []}, "": "e"} )";
  const auto doc = parse_json(text, "f");
  ASSERT_TRUE(doc);
  EXPECT_EQ(*doc, nlohmann::json::parse(text));
}

TEST(Json, NamesTheDuplicateKey) {
  EXPECT_EQ(message_of(R"({"a": {"b": 1, "\u0062": 2}})"), "f.json: the key 'b' is there twice");
}

TEST(Json, SameKeyInDifferentObjectsIsNoDuplicate) {
  EXPECT_EQ(message_of(R"({"a": {"a": 1}, "b": [{"a": 2}, {"a": 3}]})"), "accepted");
}

TEST(Json, NestingIsBounded) {
  EXPECT_EQ(message_of(std::string(128, '[') + std::string(128, ']')), "accepted");
  EXPECT_EQ(message_of(std::string(129, '[') + std::string(129, ']')),
            "f.json: nested deeper than 128");
  EXPECT_EQ(message_of(std::string(1000000, '[')), "f.json: nested deeper than 128");
}

TEST(Json, RefusesWhatIsNotJson) {
  const std::string bad[] = {"",
                             "{",
                             "[1,]",
                             "{}x",
                             "NaN",
                             "[1e999]",
                             "Infinity",
                             "01",
                             "'a'",
                             "// c\n1",
                             "\xef\xbb\xbf{}",
                             "\"\xff\"",
                             R"("\ud800")",
                             "{} {}",
                             std::string("{}\0", 3),
                             "\"\x01\"",
                             R"({"a" 1})"};
  for (const std::string& text : bad) {
    EXPECT_EQ(message_of(text).substr(0, 8), "f.json: ") << text;
  }
}

TEST(Json, MessagesDoNotRepeatTheInput) {
  EXPECT_EQ(message_of("\x1b[31m"), "f.json: not valid JSON: invalid literal (offset 0)");
}

TEST(JsonWriter, ListsOfTextsAndValuesThatMayBeAbsent) {
  JsonWriter json;
  json.begin_object().member("lines", std::vector<std::string>{"a", "\"b\""});
  json.member("none", std::vector<std::string>{}).member("bound", std::optional<double>(0.5));
  json.member("absent", std::optional<double>()).end_object();
  EXPECT_EQ(json.take(), R"({"lines":["a","\"b\""],"none":[],"bound":0.5,"absent":null})"
                         "\n");
}

}  // namespace
}  // namespace ferry::json_test
