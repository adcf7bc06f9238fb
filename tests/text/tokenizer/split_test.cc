// Texts that are cut, compared with transformers' tokenizers with truncation.

#include "tests/text/tokenizer/tokenizer_testing.h"

namespace ferry::text::split_test {
namespace {

using Ids = std::vector<int64_t>;

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
}  // namespace ferry::text::split_test
