// Tokens that generation_config.json of an encoder-decoder forbids or forces. The expected values
// follow from the processors of transformers 5.23 (generation/logits_process.py).
#include "runner/generation_rules.h"

#include <gtest/gtest.h>

#include <cmath>

#include "runner/generation_config.h"

namespace ferry::runner {
namespace {

// Returns which of five tokens the rules allow.
std::string allowed(const GenerationRules& rules, const std::vector<int64_t>& prompt,
                    const std::vector<int64_t>& answer) {
  std::vector<float> logits(5, 1.0F);
  apply_rules(rules, prompt, answer, logits);
  std::string out;
  for (const float logit : logits) out += std::isfinite(logit) ? '1' : '0';
  return out;
}

TEST(GenerationRules, BadWordsAreForbiddenWhereTheirBeginStands) {
  const GenerationRules rules = {.bad_words = {{4}, {1, 2}, {0, 1, 3}}};
  EXPECT_EQ(allowed(rules, {0}, {}), "11110");
  EXPECT_EQ(allowed(rules, {0}, {1}), "11000");
  EXPECT_EQ(allowed(rules, {1}, {}), "11010");
  EXPECT_EQ(allowed(rules, {0}, {1, 3}), "11110");
}

TEST(GenerationRules, ForcedTokensAreTheOnlyOnes) {
  const GenerationRules rules = {.forced_first = 3, .forced_last = {1, 2}, .most = 4};
  EXPECT_EQ(allowed(rules, {0}, {}), "00010");
  EXPECT_EQ(allowed(rules, {0}, {3}), "11111");
  EXPECT_EQ(allowed(rules, {0, 1}, {}), "11111");  // behind a prompt of one token alone
  EXPECT_EQ(allowed(rules, {0}, {3, 4, 4}), "01100");
}

TEST(GenerationRules, SuppressedTokens) {
  EXPECT_EQ(allowed({.suppressed = {0, 2}}, {0}, {1}), "01011");
  const GenerationRules first = {.suppressed_first = {4}};
  EXPECT_EQ(allowed(first, {0}, {}), "11110");
  EXPECT_EQ(allowed(first, {0}, {1}), "11111");
  // Behind the forced first token.
  const GenerationRules behind = {.suppressed_first = {4}, .forced_first = 1};
  EXPECT_EQ(allowed(behind, {0}, {}), "01000");
  EXPECT_EQ(allowed(behind, {0}, {1}), "11110");
  EXPECT_EQ(allowed(behind, {0}, {1, 2}), "11111");
}

TEST(GenerationRules, AreReadForEncoderDecodersAlone) {
  const std::string text = R"({"bad_words_ids": [[3], [1, 2], [4]], "forced_eos_token_id": 4,
      "eos_token_id": [4, 0], "forced_bos_token_id": 2, "suppress_tokens": [1],
      "begin_suppress_tokens": [0, 4]})";
  const auto read = parse_generation_config(text, "g.json", 5);
  ASSERT_TRUE(read);
  EXPECT_TRUE(read->unsupported.empty());
  const GenerationRules& rules = read->sampling.rules;
  // A bad word that is an end token has no effect in the reference.
  EXPECT_EQ(rules.bad_words, (std::vector<std::vector<int64_t>>{{3}, {1, 2}}));
  EXPECT_EQ(rules.forced_last, std::vector<int64_t>{4});
  EXPECT_EQ(rules.forced_first, 2);
  EXPECT_EQ(rules.suppressed, std::vector<int64_t>{1});
  EXPECT_EQ(rules.suppressed_first, (std::vector<int64_t>{0, 4}));
  const auto decoder = parse_generation_config(text, "g.json");
  ASSERT_TRUE(decoder);
  EXPECT_EQ(decoder->unsupported.size(), 5u);
  EXPECT_TRUE(decoder->sampling.rules.empty());
}

TEST(GenerationRules, WrongIdsAreRefused) {
  for (const char* text :
       {R"({"bad_words_ids": 3})", R"({"bad_words_ids": [3]})", R"({"bad_words_ids": [[]]})",
        R"({"bad_words_ids": [[5]]})", R"({"bad_words_ids": [[-1]]})",
        R"({"forced_eos_token_id": 5})", R"({"forced_bos_token_id": "a"})",
        R"({"suppress_tokens": [1.5]})", R"({"begin_suppress_tokens": [18446744073709551615]})"}) {
    const auto read = parse_generation_config(text, "g.json", 5);
    ASSERT_FALSE(read) << text;
    EXPECT_EQ(read.error().code, ErrorCode::kBadInput) << text;
    EXPECT_TRUE(read.error().message.starts_with("g.json: '")) << read.error().message;
  }
}

}  // namespace
}  // namespace ferry::runner
