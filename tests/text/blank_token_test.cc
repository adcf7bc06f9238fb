// Labels become text as ParakeetTokenizer of transformers 5.23 decodes them.
#include "text/blank_token.h"

#include <gtest/gtest.h>

namespace ferry::text::blank_token_test {
namespace {

using Labels = std::vector<int64_t>;

TEST(BlankToken, EqualNeighboursAreOneLabel) {
  EXPECT_EQ(collapsed(Labels{9, 9, 3, 3, 9, 3, 4, 4, 9}, 9), (Labels{3, 3, 4}));
  EXPECT_EQ(collapsed(Labels{5}, 9), Labels{5});
  EXPECT_EQ(collapsed(Labels{9, 9}, 9), Labels{});
  EXPECT_EQ(collapsed(Labels{}, 9), Labels{});
}

constexpr const char* kTokenizer = R"({"model": {"type": "BPE", "vocab": {"a": 0, "<pad>": 1,
                                                 "<blank>": 2}, "merges": []}})";

struct Files {
  std::string config, processor = {}, map = {};
};

Result<int64_t> blank_of(const Files& files) {
  const Tokenizer tokenizer = *Tokenizer::parse(kTokenizer, "t");
  return blank_token(tokenizer, "dir", [&](const std::string& name, uint64_t) {
    if (name == "tokenizer_config.json") return Result<std::string>(files.config);
    if (name == "processor_config.json") return Result<std::string>(files.processor);
    if (name == "special_tokens_map.json") return Result<std::string>(files.map);
    return Result<std::string>(name == "tokenizer.json" ? kTokenizer : "");
  });
}

constexpr const char* kCtc = R"({"decoder_type": "ctc"})";

TEST(BlankToken, IsThatOfTheFiles) {
  EXPECT_EQ(*blank_of({R"({"pad_token": "<pad>"})", kCtc}), 1);
  EXPECT_EQ(*blank_of({R"({"pad_token": {"content": "a"}})", kCtc}), 0);
  EXPECT_EQ(*blank_of({R"({"pad_token": "a"})", kCtc, R"({"pad_token": "<pad>"})"}), 1);
  EXPECT_EQ(*blank_of({R"({"pad_token": "<pad>"})", R"({"blank_token": "gone"})"}), 1);
  EXPECT_EQ(*blank_of({R"({"pad_token": "<pad>", "clean_up_tokenization_spaces": true})", kCtc}),
            1);
}

TEST(BlankToken, RefusesByName) {
  const std::pair<Files, const char*> cases[] = {
      {{"", kCtc}, "'pad_token', the blank, is missing"},
      {{R"({"pad_token": null})", kCtc}, "'pad_token', the blank, is missing"},
      {{R"({"pad_token": 7})", kCtc}, "'pad_token' is no text"},
      {{R"({"pad_token": "x"})", kCtc}, "is not a token of the tokenizer"},
      {{"[]", kCtc}, "is no JSON object"},
      {{R"({"pad_token": "<pad>"})", ""}, "'decoder_type' is missing"},
      {{R"({"pad_token": "<pad>"})", R"({"decoder_type": "tdt"})"}, "not ctc"},
      {{R"({"pad_token": "<pad>",
            "clean_up_tokenization_spaces_for_bpe_even_though_it_will_corrupt_output": true})",
        kCtc},
       "is not false"}};
  for (const auto& [files, message] : cases) {
    const auto read = blank_of(files);
    ASSERT_FALSE(read.has_value()) << message;
    EXPECT_NE(read.error().message.find(message), std::string::npos) << read.error().message;
  }
}

}  // namespace
}  // namespace ferry::text::blank_token_test
