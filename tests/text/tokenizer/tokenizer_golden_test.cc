// The tokenizers of testdata, compared with the results of the tokenizers library for the same
// files.

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

}  // namespace
}  // namespace ferry::text::tokenizer_golden_test
