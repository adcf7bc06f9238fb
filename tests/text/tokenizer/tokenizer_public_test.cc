// Small tokenizers in the layout of public ones, compared with the results of the tokenizers
// library for the same files.

#include <algorithm>
#include <filesystem>

#include "tests/text/tokenizer/tokenizer_testing.h"

namespace ferry::text::tokenizer_public_test {
namespace {

using Ids = std::vector<int64_t>;

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

}  // namespace
}  // namespace ferry::text::tokenizer_public_test
