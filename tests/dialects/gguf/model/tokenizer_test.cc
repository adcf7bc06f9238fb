#include "dialects/gguf/model/adopt.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace ferry::converters::tokenizer_test {
namespace {

using Json = nlohmann::json;

Json byte_level_keys() {
  return {{"tokenizer.ggml.model", "gpt2"},
          {"tokenizer.ggml.pre", "qwen2"},
          {"tokenizer.ggml.tokens", {"a", "b", "ab", "<eos>", "<tool>", "[PAD5]"}},
          {"tokenizer.ggml.token_type", {1, 1, 1, 3, 4, 5}},
          {"tokenizer.ggml.merges", {"a b"}},
          {"tokenizer.ggml.eos_token_id", 3},
          {"tokenizer.chat_template", "{{ messages }}"}};
}

Json sentence_piece_keys() {
  return {{"tokenizer.ggml.model", "llama"},
          {"tokenizer.ggml.tokens", {"<unk>", "<s>", "<0x0A>", "a", "b", "c", "ab", "bc", "abc"}},
          {"tokenizer.ggml.token_type", {2, 3, 6, 1, 1, 1, 1, 1, 1}},
          {"tokenizer.ggml.scores", {0.0, 0.0, 0.0, -4.0, -5.0, -6.0, -2.0, -1.0, -3.0}},
          {"tokenizer.ggml.bos_token_id", 1},
          {"tokenizer.ggml.unknown_token_id", 0}};
}

TEST(GgufTokenizer, OfByteLevelBpe) {
  const auto made = make_gguf_tokenizer(byte_level_keys(), "f").value();
  const Json tokenizer = Json::parse(made.tokenizer);
  EXPECT_EQ(made.missing, "");
  EXPECT_EQ(tokenizer["model"]["vocab"],
            Json({{"a", 0}, {"b", 1}, {"ab", 2}, {"<eos>", 3}, {"<tool>", 4}}));
  EXPECT_EQ(tokenizer["model"]["merges"], Json::parse(R"([["a", "b"]])"));
  EXPECT_EQ(tokenizer["model"]["ignore_merges"], false);
  EXPECT_EQ(tokenizer["normalizer"]["type"], "NFC");
  ASSERT_EQ(tokenizer["added_tokens"].size(), 2U);
  EXPECT_EQ(tokenizer["added_tokens"][0]["content"], "<eos>");
  EXPECT_EQ(tokenizer["added_tokens"][0]["special"], true);
  EXPECT_EQ(tokenizer["added_tokens"][1]["id"], 4);
  EXPECT_EQ(tokenizer["added_tokens"][1]["special"], false);
  const Json& steps = tokenizer["pre_tokenizer"]["pretokenizers"];
  ASSERT_EQ(steps.size(), 2U);
  EXPECT_EQ(steps[0]["type"], "Split");
  EXPECT_EQ(steps[1]["use_regex"], false);
  EXPECT_TRUE(tokenizer["post_processor"].is_null());
  const Json config = Json::parse(made.tokenizer_config);
  EXPECT_EQ(config["eos_token"], "<eos>");
  EXPECT_EQ(config["chat_template"], "{{ messages }}");
}

// U+2581 stands before tokens that begin a word.
TEST(GgufTokenizer, OfWordPiece) {
  Json keys = {{"tokenizer.ggml.model", "bert"},
               {"tokenizer.ggml.tokens", {"[UNK]", "[CLS]", "[SEP]", "\u2581the", "s"}},
               {"tokenizer.ggml.token_type", {3, 3, 3, 1, 1}},
               {"tokenizer.ggml.unknown_token_id", 0},
               {"tokenizer.ggml.cls_token_id", 1},
               {"tokenizer.ggml.seperator_token_id", 2}};
  const Json tokenizer = Json::parse(make_gguf_tokenizer(keys, "f").value().tokenizer);
  EXPECT_EQ(tokenizer["model"]["type"], "WordPiece");
  EXPECT_EQ(tokenizer["model"]["vocab"],
            Json({{"[UNK]", 0}, {"[CLS]", 1}, {"[SEP]", 2}, {"the", 3}, {"##s", 4}}));
  EXPECT_EQ(tokenizer["normalizer"]["lowercase"], true);
  EXPECT_EQ(tokenizer["post_processor"]["single"].size(), 3U);
  keys["tokenizer.ggml.tokens"][3] = "\u2581The";
  EXPECT_EQ(
      Json::parse(make_gguf_tokenizer(keys, "f").value().tokenizer)["normalizer"]["lowercase"],
      false);
}

TEST(GgufTokenizer, OfUnigram) {
  const Json keys = {{"tokenizer.ggml.model", "t5"},
                     {"tokenizer.ggml.tokens", {"<s>", "</s>", "<unk>", "\u2581a"}},
                     {"tokenizer.ggml.token_type", {3, 3, 2, 1}},
                     {"tokenizer.ggml.scores", {0.0, 0.0, 0.0, -1.5}},
                     {"tokenizer.ggml.precompiled_charsmap", {1, 2, -1, 4}},
                     {"tokenizer.ggml.bos_token_id", 0},
                     {"tokenizer.ggml.eos_token_id", 1},
                     {"tokenizer.ggml.unknown_token_id", 2},
                     {"tokenizer.ggml.add_bos_token", true}};
  const Json tokenizer = Json::parse(make_gguf_tokenizer(keys, "f").value().tokenizer);
  EXPECT_EQ(tokenizer["model"]["type"], "Unigram");
  EXPECT_EQ(tokenizer["model"]["unk_id"], 2);
  EXPECT_EQ(tokenizer["model"]["vocab"][3], Json::array({"\u2581a", -1.5}));
  EXPECT_EQ(tokenizer["normalizer"]["precompiled_charsmap"], "AQL/BA==");
  EXPECT_EQ(tokenizer["post_processor"]["single"].size(), 3U);
}

TEST(GgufTokenizer, BeginTokensAreAdded) {
  Json keys = byte_level_keys();
  keys["tokenizer.ggml.pre"] = "llama-bpe";
  keys["tokenizer.ggml.bos_token_id"] = 3;
  const Json tokenizer = Json::parse(make_gguf_tokenizer(keys, "f").value().tokenizer);
  EXPECT_EQ(tokenizer["model"]["ignore_merges"], true);
  EXPECT_EQ(tokenizer["post_processor"]["single"],
            Json::parse(R"([{"SpecialToken": {"id": "<eos>", "type_id": 0}},
                            {"Sequence": {"id": "A", "type_id": 0}}])"));
  EXPECT_EQ(tokenizer["post_processor"]["special_tokens"]["<eos>"]["ids"], Json({3}));
  keys["tokenizer.ggml.add_bos_token"] = false;
  EXPECT_TRUE(
      Json::parse(make_gguf_tokenizer(keys, "f").value().tokenizer)["post_processor"].is_null());
}

// Merges that make better tokens come first: "bc" before "ab" before "abc", which has two merges.
TEST(GgufTokenizer, OfSentencePiece) {
  const auto made = make_gguf_tokenizer(sentence_piece_keys(), "f").value();
  const Json tokenizer = Json::parse(made.tokenizer);
  EXPECT_EQ(tokenizer["model"]["merges"],
            Json::parse(R"([["b", "c"], ["a", "b"], ["a", "bc"], ["ab", "c"]])"));
  EXPECT_EQ(tokenizer["model"]["unk_token"], "<unk>");
  EXPECT_EQ(tokenizer["model"]["byte_fallback"], true);
  EXPECT_EQ(tokenizer["normalizer"]["normalizers"].size(), 2U);
  EXPECT_EQ(tokenizer["post_processor"]["single"].size(), 2U);
}

// Words are not split, merges are those of the file, and the first token is set whatever it says.
TEST(GgufTokenizer, OfGemma4) {
  Json keys = sentence_piece_keys();
  keys["tokenizer.ggml.model"] = "gemma4";
  keys["tokenizer.ggml.merges"] = {"b c", "a bc"};
  keys["tokenizer.ggml.add_bos_token"] = false;
  const Json tokenizer = Json::parse(make_gguf_tokenizer(keys, "f").value().tokenizer);
  EXPECT_EQ(tokenizer["model"]["merges"], Json::parse(R"([["b", "c"], ["a", "bc"]])"));
  EXPECT_EQ(tokenizer["model"]["unk_token"], "<unk>");
  EXPECT_EQ(tokenizer["model"]["byte_fallback"], true);
  EXPECT_EQ(tokenizer["normalizer"]["type"], "Replace");
  EXPECT_TRUE(tokenizer["pre_tokenizer"].is_null());
  EXPECT_EQ(tokenizer["post_processor"]["single"].size(), 2U);
}

TEST(GgufTokenizer, WhatTheMetadataDoNotTellIsLeftOutWithAReason) {
  const struct {
    Json keys;
    const char* key;
    Json value;
    const char* why;
  } kCases[] = {
      {byte_level_keys(), "tokenizer.ggml.model", "rwkv",
       "tokenizer.ggml.model 'rwkv' is not known"},
      {byte_level_keys(), "tokenizer.ggml.pre", "viking",
       "tokenizer.ggml.pre 'viking' is not known"},
      {byte_level_keys(), "tokenizer.ggml.tokens", nullptr, "the metadata have no tokenizer"},
      {byte_level_keys(),
       "tokenizer.ggml.tokens",
       {"a", "a", "b", "c", "d", "e"},
       "two tokens are 'a'"},
      {byte_level_keys(),
       "tokenizer.ggml.tokens",
       {"a", "\xff", "b", "c", "d", "e"},
       "token 1 is not UTF-8"},
      {byte_level_keys(),
       "tokenizer.ggml.merges",
       {"a b", "ab"},
       "the merge 'ab' is not two tokens"},
      {sentence_piece_keys(), "tokenizer.ggml.scores", nullptr,
       "tokenizer.ggml.scores do not rank the tokens"},
      {sentence_piece_keys(), "tokenizer.ggml.scores", Json(std::vector<double>(9, -1000.0)),
       "tokenizer.ggml.scores do not rank the tokens"},
  };
  for (const auto& c : kCases) {
    Json keys = c.keys;
    keys[c.key] = c.value;
    const auto made = make_gguf_tokenizer(keys, "f");
    ASSERT_TRUE(made) << c.why;
    EXPECT_EQ(made->missing, c.why);
    EXPECT_EQ(made->tokenizer, "");
  }
}

// Padding tokens are left out, except those that a key names.
TEST(GgufTokenizer, UnusedTokensThatAKeyNamesStay) {
  Json keys = byte_level_keys();
  const auto tokens = [&] {
    const GgufTokenizer made = make_gguf_tokenizer(keys, "f").value();
    return Json::parse(made.tokenizer)["model"]["vocab"].size();
  };
  EXPECT_EQ(tokens(), 5u);
  keys["tokenizer.ggml.eos_token_id"] = 5;
  EXPECT_EQ(tokens(), 6u);
}

// As in llama.cpp, whose converter writes what the config says.
TEST(GgufTokenizer, AMaskThatIsNoTokenIsNone) {
  Json keys = byte_level_keys();
  keys["tokenizer.ggml.mask_token_id"] = 128002;
  const auto made = make_gguf_tokenizer(keys, "f").value();
  EXPECT_FALSE(Json::parse(made.tokenizer_config).contains("mask_token"));
  EXPECT_EQ(Json::parse(made.tokenizer)["model"]["vocab"].size(), 5U);
  keys["tokenizer.ggml.mask_token_id"] = 4;
  const auto masked = make_gguf_tokenizer(keys, "f").value();
  EXPECT_EQ(Json::parse(masked.tokenizer_config)["mask_token"], "<tool>");
}

TEST(GgufTokenizer, ValuesOfTheWrongKindAreRefused) {
  const struct {
    const char* key;
    Json value;
    const char* message;
  } kCases[] = {
      {"tokenizer.ggml.tokens",
       {"a", 1},
       "f: 'tokenizer.ggml.tokens' has an element that is not a string"},
      {"tokenizer.ggml.tokens", "a", "f: 'tokenizer.ggml.tokens' is not an array"},
      {"tokenizer.ggml.token_type",
       {1, 1},
       "f: 'tokenizer.ggml.token_type' is not an array of one element per token"},
      {"tokenizer.ggml.eos_token_id", 6,
       "f: 'tokenizer.ggml.eos_token_id' is 6, but there are 6 tokens"},
      {"tokenizer.ggml.add_bos_token", 1, "f: 'tokenizer.ggml.add_bos_token' is not true or false"},
  };
  for (const auto& c : kCases) {
    Json keys = byte_level_keys();
    keys[c.key] = c.value;
    const auto made = make_gguf_tokenizer(keys, "f");
    ASSERT_FALSE(made) << c.message;
    EXPECT_EQ(made.error().message, c.message);
    EXPECT_EQ(made.error().code, ErrorCode::kBadInput);
  }
}

}  // namespace
}  // namespace ferry::converters::tokenizer_test
