// Tokenizers of mistral-common. Ids are those of mistral-common 1.13.1 for
// testdata/speech/voxtral/tekken.json.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/cli/checkpoints.h"
#include "text/tokenizer/tokenizer_files.h"

namespace ferry::text::tekken_test {
namespace {

using Ids = std::vector<int64_t>;
using nlohmann::json;

std::string file() { return read_bytes(fixture("speech/voxtral/tekken.json")); }

TEST(Tekken, IdsAreThoseOfTheReference) {
  Tokenizer tokenizer = *tekken_tokenizer(file(), "tekken.json");
  const std::pair<const char*, Ids> cases[] = {
      {"The then and", {1, 124, 297, 72, 296, 141, 150, 72, 304}},
      {"[INST] <s>", {1, 131, 113, 118, 123, 124, 133, 72, 100, 155, 102}},
      {"12 thé\n\n x", {1, 89, 90, 72, 296, 307, 50, 50, 72, 160}},
      {"naïve 中", {1, 150, 137, 235, 215, 158, 141, 72, 268, 224, 213}},
      {"", {1}}};
  for (const auto& [text, ids] : cases) {
    EXPECT_EQ(*tokenizer.encode(text, /*add_special=*/true), ids) << text;
    EXPECT_EQ(*tokenizer.decode(ids, /*skip_special=*/true), text);
    EXPECT_EQ(*tokenizer.decode(ids, /*skip_special=*/false), std::string("<s>") + text);
  }
  EXPECT_EQ(tokenizer.find("[AUDIO]"), 24);
  EXPECT_EQ(tokenizer.find("<SPECIAL_39>"), 39);
  EXPECT_EQ(tokenizer.id_bound(), 308);
}

TEST(Tekken, FoldersHaveItWhereThereIsNoOther) {
  const std::string folder = fixture("speech/voxtral");
  auto tokenizer = load_tokenizer(folder);
  ASSERT_TRUE(tokenizer) << tokenizer.error().message;
  EXPECT_EQ(tokenizer->encode("the", false)->size(), 2u);
  EXPECT_TRUE(load_tokenizer(folder + "/tekken.json"));
}

TEST(Tekken, OldFilesHaveTheUsualControlTokens) {
  json old = json::parse(file());
  old.erase("special_tokens");
  const auto tokenizer = tekken_tokenizer(old.dump(), "t");
  ASSERT_TRUE(tokenizer) << tokenizer.error().message;
  EXPECT_EQ(tokenizer->find("[TOOL_CONTENT]"), 19);
  EXPECT_EQ(tokenizer->find("<SPECIAL_20>"), 20);
  old["config"]["version"] = "v11";
  EXPECT_EQ(tekken_tokenizer(old.dump(), "t").error().code, ErrorCode::kBadInput);
}

TEST(Tekken, RefusesByName) {
  const std::tuple<const char*, json, const char*> cases[] = {
      {"/config", nullptr, "'config' is not an object"},
      {"/config/pattern", 3, "'config.pattern' is not a text"},
      {"/config/pattern", "(", "regex: missing closing parenthesis"},
      {"/config/version", "v1", "'config.version' is 'v1': not supported"},
      {"/config/default_vocab_size", -1, "'config.default_vocab_size' is not a number of tokens"},
      {"/config/default_vocab_size", 4000, "'vocab' is not a list of 3960 tokens or more"},
      {"/config/default_vocab_size", 41, "'vocab' is not a list of 256 tokens or more"},
      {"/config/default_num_special_tokens", 3, "'vocab' is not a list of 305 tokens or more"},
      {"/special_tokens/2", "</s>", "special_tokens[2]"},
      {"/special_tokens/2/rank", 7, "special_tokens[2]"},
      {"/special_tokens/2/token_str", "", "special_tokens[2]"},
      {"/special_tokens/2/token_str", "<s>", "the token '<s>' is there twice"},
      {"/special_tokens/1/token_str", "<t>", "the special token '<s>' is not in the vocabulary"},
      {"/vocab/5/rank", 6, "vocab[5]"},
      {"/vocab/256/token_bytes", "?", "vocab[256]"},
      {"/vocab/257/token_bytes", "dGg=", "is there twice"}};
  for (const auto& [key, value, message] : cases) {
    json changed = json::parse(file());
    changed[json::json_pointer(key)] = value;
    const auto tokenizer = tekken_tokenizer(changed.dump(), "t");
    ASSERT_FALSE(tokenizer) << key;
    EXPECT_NE(tokenizer.error().message.find(message), std::string::npos)
        << key << ": " << tokenizer.error().message;
  }
  EXPECT_FALSE(tekken_tokenizer("[1]", "t"));
  EXPECT_FALSE(tekken_tokenizer("{", "t"));
}

}  // namespace
}  // namespace ferry::text::tekken_test
