// special_tokens_map.json beside tokenizer_config.json: which of the two has precedence.

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <string>

#include "text/answer_end.h"
#include "text/chat_template/chat_template.h"

namespace ferry::text::answer_end_tokens_test {
namespace {

constexpr const char* kJinja = "{{ bos_token }}|{{ eos_token }}|{{ pad_token }}";

std::string rendered(const std::string& config, const std::string& map) {
  const std::map<std::string, std::string> files = {
      {kChatTemplateFile, kJinja}, {kTokenizerConfigFile, config}, {kSpecialTokensMapFile, map}};
  const auto chat = ChatTemplate::load(
      "d",
      [&](const std::string& name, uint64_t) -> Result<std::string> { return files.at(name); });
  if (!chat) return chat.error().message;
  const auto text = chat->render("[]", "line 1", {});
  return text ? *text : text.error().message;
}

TEST(SpecialTokensMap, SpeaksWhereTheConfigDoesNot) {
  EXPECT_EQ(rendered("", R"({"bos_token": "<s>", "eos_token": {"content": "</s>"}})"), "<s>|</s>|");
  EXPECT_EQ(rendered(R"({"pad_token": "<p>"})", R"({"bos_token": "<s>"})"), "<s>||<p>");
  EXPECT_EQ(rendered(R"({"bos_token": "<a>"})", ""), "<a>||");
}

// The precedence is that of transformers.
TEST(SpecialTokensMap, GoesBeforeAConfigWithoutAddedTokens) {
  EXPECT_EQ(rendered(R"({"bos_token": "<a>"})", R"({"bos_token": "<s>"})"), "<s>||");
  EXPECT_EQ(rendered(R"({"bos_token": "<a>", "added_tokens_decoder": {}})",
                     R"({"bos_token": "<s>", "eos_token": "</s>"})"),
            "<a>||");
}

TEST(SpecialTokensMap, IsMalformed) {
  EXPECT_NE(rendered("{}", "{").find("d/special_tokens_map.json"), std::string::npos);
}

// -- end tokens

class EndTokens : public testing::Test {
 protected:
  void SetUp() override {
    namespace fs = std::filesystem;
    directory = testing::TempDir() + "end_tokens";
    fs::remove_all(directory);
    fs::create_directories(directory);
    fs::copy(std::string(FERRY_TESTDATA) + "/tokenizer/models/llama_plain/tokenizer.model",
             directory + "/tokenizer.model");
  }
  void TearDown() override { std::filesystem::remove_all(directory); }
  void write(const char* name, const std::string& text) const {
    std::ofstream(directory + "/" + name) << text;
  }
  std::vector<int64_t> found() const {
    const auto ids = end_tokens(directory);
    return ids ? *ids : std::vector<int64_t>{-1};
  }

  std::string directory;
};

TEST_F(EndTokens, ComeFromTheMap) {
  EXPECT_EQ(found(), std::vector<int64_t>());
  write(kSpecialTokensMapFile, R"({"eos_token": {"content": "</s>"}})");
  EXPECT_EQ(found(), std::vector<int64_t>{2});
  write(kTokenizerConfigFile, R"({"eos_token": "<s>"})");
  EXPECT_EQ(found(), std::vector<int64_t>{2});
  write(kTokenizerConfigFile, R"({"eos_token": "<s>", "added_tokens_decoder": {}})");
  EXPECT_EQ(found(), std::vector<int64_t>{1});
}

}  // namespace
}  // namespace ferry::text::answer_end_tokens_test
