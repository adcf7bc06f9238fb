// Ids and texts are those of MarianTokenizer of transformers 5.23
// (tests/conformance/make_source_golden.py).
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "text/tokenizer/tokenizer_files.h"

namespace ferry::text {
namespace {

using nlohmann::json;

std::string folder() { return std::string(FERRY_TESTDATA) + "/source/marian"; }

std::string bytes_of(const std::string& name) {
  std::ifstream file(folder() + "/" + name, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

TEST(SentencePieceWords, IdsAndTextsAreThoseOfTheReference) {
  auto tokenizer = load_tokenizer(folder());
  ASSERT_TRUE(tokenizer) << tokenizer.error().message;
  const json rows = json::parse(bytes_of("texts.json"));
  ASSERT_GT(rows.size(), 100u);
  for (const json& row : rows) {
    const std::vector<int64_t> ids = row["ids"];
    if (row.contains("text")) {
      const std::string text = row["text"];
      const auto got = tokenizer->encode(text, /*add_special=*/true);
      ASSERT_TRUE(got) << got.error().message;
      EXPECT_EQ(*got, ids) << row;
    }
    EXPECT_EQ(*tokenizer->decode(ids, /*skip_special=*/false), row["whole"]) << row;
    EXPECT_EQ(*tokenizer->decode(ids, /*skip_special=*/true), row["plain"]) << row;
  }
}

// Loads the tokenizer with some of its files changed; an empty text stands for no file.
Result<Tokenizer> load_with(const std::map<std::string, std::string>& changed) {
  return load_tokenizer("d", [&](const std::string& name, uint64_t) -> Result<std::string> {
    const auto found = changed.find(name);
    return found == changed.end() ? bytes_of(name) : found->second;
  });
}

void expect_refused(const std::map<std::string, std::string>& changed, ErrorCode code,
                    const std::string& why) {
  const auto tokenizer = load_with(changed);
  ASSERT_FALSE(tokenizer) << why;
  EXPECT_EQ(tokenizer.error().code, code) << tokenizer.error().message;
  EXPECT_NE(tokenizer.error().message.find(why), std::string::npos) << tokenizer.error().message;
}

TEST(SentencePieceWords, OtherSettingsAreRefused) {
  ASSERT_TRUE(load_with({}));
  const auto config = [](const std::string& members) {
    return std::map<std::string, std::string>{{"tokenizer_config.json", "{" + members + "}"}};
  };
  const std::string marian = R"("tokenizer_class": "MarianTokenizer", )";
  for (const char* member :
       {R"("separate_vocabs": true)", R"("sp_model_kwargs": {"enable_sampling": true})",
        R"("clean_up_tokenization_spaces": true)"}) {
    expect_refused(config(marian + member), ErrorCode::kUnsupported, "not supported");
  }
  expect_refused(config(R"("tokenizer_class": "T5Tokenizer")"), ErrorCode::kUnsupported,
                 "the class is 'T5Tokenizer' instead of MarianTokenizer");
  expect_refused(config(marian + R"("unk_token": "<none>")"), ErrorCode::kUnsupported,
                 "the token '<unk>' of vocab.json is a control piece and no special token");
  expect_refused({{"vocab.json", R"({"</s>": 0, "<pad>": 1})"}}, ErrorCode::kBadInput,
                 "the unknown token is not in the vocabulary");
  expect_refused({{"vocab.json", ""}}, ErrorCode::kUnsupported, "without vocab.json");
}

TEST(SentencePieceWords, DamagedFilesAreRefused) {
  expect_refused({{"vocab.json", "[]"}}, ErrorCode::kBadInput, "not a JSON object");
  expect_refused({{"vocab.json", R"({"<unk>": -1})"}}, ErrorCode::kBadInput, "has no id");
  expect_refused({{"vocab.json", R"({"<unk>": 1.5})"}}, ErrorCode::kBadInput, "has no id");
  expect_refused({{"vocab.json", R"({"<unk>": 1, "</s>": 1, "<pad>": 2})"}}, ErrorCode::kBadInput,
                 "have the id 1");
  const std::string model = bytes_of("source.spm");
  for (size_t size = 1; size < model.size(); size += 7) {
    const auto tokenizer = load_with({{"source.spm", model.substr(0, size)}});
    if (!tokenizer) {
      EXPECT_EQ(tokenizer.error().message.find("d/source.spm"), 0u);
    }
  }
}

}  // namespace
}  // namespace ferry::text
