#include "text/tokenizer/tokenizer.h"

#include "tests/text/tokenizer/tokenizer_testing.h"

namespace ferry::text::text_stream_test {
namespace {

TEST(TextStream, JoinedPartsAreTheWholeText) {
  for (const char* name : {"qwen", "qwen35", "llama3", "smollm2", "llama2", "gemma"}) {
    const auto tokenizer =
        Tokenizer::parse(read_fixture(std::string(name) + "/tokenizer.json"), name);
    ASSERT_TRUE(tokenizer);
    const auto golden = nlohmann::json::parse(read_fixture(std::string(name) + "/golden.json"));
    for (const auto& row : golden["strings"]) {
      const std::vector<int64_t> ids = row["ids"];
      TextStream stream(*tokenizer);
      std::string text;
      for (const int64_t id : ids) text += *stream.push(id);
      text += *stream.finish();
      EXPECT_EQ(text, *tokenizer->decode(ids, true)) << name;
    }
  }
}

TEST(TextStream, HoldsIncompleteCharactersBack) {
  auto tokenizer = Tokenizer::parse(read_fixture("llama3/tokenizer.json"), "t");
  ASSERT_TRUE(tokenizer);
  const auto ids = *tokenizer->encode("a\xF0\x9F\xA6\x84", false);
  ASSERT_EQ(ids.size(), 5U);  // one token for each byte
  TextStream stream(*tokenizer);
  EXPECT_EQ(*stream.push(ids[0]), "a");
  for (const size_t i : {1, 2, 3}) EXPECT_EQ(*stream.push(ids[i]), "");
  EXPECT_EQ(*stream.push(ids[4]), "\xF0\x9F\xA6\x84");
  EXPECT_EQ(*stream.push(ids[1]), "");
  EXPECT_EQ(*stream.finish(), "\xEF\xBF\xBD");
}

}  // namespace
}  // namespace ferry::text::text_stream_test
