#include "prompt/speech_settings.h"

#include <gtest/gtest.h>

namespace ferry::prompt::speech_settings_test {
namespace {

constexpr int64_t kVocab = 11;

TEST(SpeechSettings, AreReadAndRefusedByName) {
  const std::string ids = R"("decoder_start_token_id": 1, "eos_token_id": 4)";
  const auto read = parse_speech_settings(
      "{" + ids +
          R"(, "forced_decoder_ids": [[1, null], [2, 3]], "num_beams": 1, "max_length": 9})",
      kVocab, "g.json");
  ASSERT_TRUE(read.has_value()) << read.error().message;
  EXPECT_EQ(read->forced, (std::vector<std::optional<int64_t>>{std::nullopt, 3}));
  EXPECT_EQ(read->max_length, 9);
  const std::pair<std::string, const char*> cases[] = {
      {"{}", "'decoder_start_token_id' is missing"},
      {"{" + ids + R"(, "num_beams": 5})", "'num_beams' is '5': not supported"},
      {"{" + ids + R"(, "no_speech_threshold": 0.6})", "'no_speech_threshold'"},
      {"{" + ids + R"(, "suppress_tokens": [11]})", "'suppress_tokens' has no token"},
      {"{" + ids + R"(, "forced_decoder_ids": [[2, 3]]})", "'forced_decoder_ids' is not a list of"},
      {"{" + ids + R"(, "lang_to_id": []})", "'lang_to_id' is not an object"},
      {"[]", "not a JSON object"}};
  for (const auto& [text, message] : cases) {
    const auto bad = parse_speech_settings(text, kVocab, "g.json");
    ASSERT_FALSE(bad.has_value()) << text;
    EXPECT_NE(bad.error().message.find(message), std::string::npos) << bad.error().message;
  }
}

}  // namespace
}  // namespace ferry::prompt::speech_settings_test
