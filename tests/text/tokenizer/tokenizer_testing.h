// Small tokenizers for tests, and those of testdata/tokenizer.
#pragma once

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

#include "text/tokenizer/tokenizer.h"

namespace ferry::text {

inline std::string read_fixture(const std::string& name) {
  std::ifstream file(std::string(FERRY_TESTDATA) + "/tokenizer/" + name);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

// Returns a character model over a, b, c, the blank and two words, without byte fallback.
inline nlohmann::json small_tokenizer() {
  return nlohmann::json::parse(R"({
    "version": "1.0", "truncation": null, "padding": null, "added_tokens": [],
    "normalizer": null, "pre_tokenizer": null, "post_processor": null, "decoder": {"type": "Fuse"},
    "model": {"type": "BPE", "dropout": null, "unk_token": "?", "fuse_unk": false,
              "continuing_subword_prefix": null, "end_of_word_suffix": null,
              "byte_fallback": false, "ignore_merges": false,
              "vocab": {"?": 0, "a": 1, "b": 2, "c": 3, " ": 4, "ab": 5, "abc": 6, "A": 7},
              "merges": ["a b", "ab c"]}})");
}

inline Result<Tokenizer> parse(const nlohmann::json& file) {
  return Tokenizer::parse(file.dump(), "t");
}

inline std::vector<int64_t> encode(const nlohmann::json& file, const std::string& text,
                                   bool add_special = false) {
  auto tokenizer = parse(file);
  EXPECT_TRUE(tokenizer) << tokenizer.error().message;
  if (!tokenizer) return {};
  const auto ids = tokenizer->encode(text, add_special);
  EXPECT_TRUE(ids) << ids.error().message;
  return ids ? *ids : std::vector<int64_t>{};
}

}  // namespace ferry::text
