// The tokenizers of testdata, compared with the results of the tokenizers library, or of
// transformers, for the same files.
#include <algorithm>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tests/text/tokenizer/tokenizer_testing.h"

namespace ferry::text::tokenizer_golden_test {
namespace {

using Ids = std::vector<int64_t>;

class Golden : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    const std::string name = GetParam();
    golden = nlohmann::json::parse(read_fixture(name + "/golden.json"));
    auto parsed = Tokenizer::parse(read_fixture(name + "/tokenizer.json"), name);
    ASSERT_TRUE(parsed) << parsed.error().message;
    tokenizer.emplace(std::move(*parsed));
  }
  Ids encode(const std::string& text, bool add_special) {
    const auto ids = tokenizer->encode(text, add_special);
    return ids ? *ids : Ids{-1};
  }
  std::string decode(const Ids& ids, bool skip_special) {
    const auto text = tokenizer->decode(ids, skip_special);
    return text ? *text : "refused";
  }

  nlohmann::json golden;
  std::optional<Tokenizer> tokenizer;
};

TEST_P(Golden, EveryStringHasTheIdsOfTheReference) {
  ASSERT_EQ(golden["strings"].size(), 300U);
  for (const auto& row : golden["strings"]) {
    const std::string text = row["text"];
    const Ids ids = row["ids"];
    EXPECT_EQ(encode(text, false), ids) << text;
    Ids special = row.value("prefix", Ids{});
    special.insert(special.end(), ids.begin(), ids.end());
    EXPECT_EQ(encode(text, true), special) << text;
  }
}

TEST_P(Golden, EveryListOfIdsHasTheTextOfTheReference) {
  for (const auto& row : golden["strings"]) {
    const std::string text = row.value("decoded", row["text"].get<std::string>());
    EXPECT_EQ(decode(row["ids"], false), text);
    EXPECT_EQ(decode(row["ids"], true), row.value("decoded_skip_special", text));
  }
  ASSERT_EQ(golden["decode_only"].size(), 60U);
  for (const auto& row : golden["decode_only"]) {
    EXPECT_EQ(decode(row["ids"], false), row["decoded"].get<std::string>());
  }
}

INSTANTIATE_TEST_SUITE_P(Tokenizers, Golden,
                         testing::Values("qwen", "qwen35", "llama3", "smollm2", "llama2", "gemma"),
                         [](const auto& test) { return std::string(test.param); });

// -- small tokenizers in the layout of public ones

std::vector<std::string> public_tokenizers() {
  std::vector<std::string> names;
  const std::string folder = std::string(FERRY_TESTDATA) + "/tokenizer/public";
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().stem() != "texts") names.push_back(entry.path().stem());
  }
  std::ranges::sort(names);
  return names;
}

class Public : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    texts = nlohmann::json::parse(read_fixture("public/texts.json"));
    golden = nlohmann::json::parse(read_fixture("public/" + GetParam() + ".json"));
    auto parsed = Tokenizer::parse(golden["tokenizer"].dump(), GetParam());
    ASSERT_TRUE(parsed) << parsed.error().message;
    tokenizer.emplace(std::move(*parsed));
    ASSERT_EQ(golden["rows"].size(), texts.size());
  }
  Ids encode(const std::string& text, bool add_special) {
    const auto ids = tokenizer->encode(text, add_special);
    return ids ? *ids : Ids{-1};
  }
  std::string decode(const Ids& ids, bool skip_special) {
    const auto text = tokenizer->decode(ids, skip_special);
    return text ? *text : "refused";
  }
  // Adds the special tokens of the reference around the ids.
  Ids enclosed(const Ids& ids) {
    Ids all = golden["prefix"];
    const Ids suffix = golden["suffix"];
    all.insert(all.end(), ids.begin(), ids.end());
    all.insert(all.end(), suffix.begin(), suffix.end());
    return all;
  }

  nlohmann::json texts, golden;
  std::optional<Tokenizer> tokenizer;
};

// A row has the ids, their decoded text where it is not the text, and the decoded text of the ids
// with special tokens around them, without special tokens, where it is yet another.
TEST_P(Public, TokenizerDoesWhatTheReferenceDoes) {
  for (size_t i = 0; i < texts.size(); ++i) {
    const std::string text = texts[i];
    const auto& row = golden["rows"][i];
    const Ids ids = row[0];
    EXPECT_EQ(encode(text, false), ids) << text;
    EXPECT_EQ(encode(text, true), enclosed(ids)) << text;
    const std::string decoded = row[1].is_null() ? text : row[1].get<std::string>();
    EXPECT_EQ(decode(ids, false), decoded) << text;
    const std::string skipped = row[2].is_null() ? decoded : row[2].get<std::string>();
    EXPECT_EQ(decode(enclosed(ids), true), skipped) << text;
  }
}

INSTANTIATE_TEST_SUITE_P(Tokenizers, Public, testing::ValuesIn(public_tokenizers()),
                         [](const auto& test) { return test.param; });

// -- texts that transformers' tokenizers truncate

Result<Tokenizer> open(const std::string& name) {
  const auto document = nlohmann::json::parse(read_fixture(name));
  return Tokenizer::parse(document.value("tokenizer", document).dump(), name);
}

TEST(Cut, TextsLoseWhatTheReferenceTakesAway) {
  std::map<std::string, Tokenizer> tokenizers;
  for (const auto& row : nlohmann::json::parse(read_fixture("cut.json"))) {
    const std::string name = row["tokenizer"];
    if (!tokenizers.contains(name)) {
      auto opened = open(name);
      ASSERT_TRUE(opened) << opened.error().message;
      tokenizers.emplace(name, std::move(*opened));
    }
    const auto cut = row["side"] == "left" ? Tokenizer::Cut::kBegin : Tokenizer::Cut::kEnd;
    const auto ids =
        tokenizers.at(name).encode_cut(row["text"].get<std::string>(), row["most"], cut);
    ASSERT_TRUE(ids) << ids.error().message;
    EXPECT_EQ(*ids, row["ids"].get<Ids>()) << row;
  }
}

TEST(Cut, SpecialTokensNeedRoom) {
  auto tokenizer = open("public/roberta.json");
  ASSERT_TRUE(tokenizer);
  EXPECT_EQ(tokenizer->encode_cut("a", 1, Tokenizer::Cut::kEnd).error().code, ErrorCode::kUsage);
}

}  // namespace
}  // namespace ferry::text::tokenizer_golden_test
