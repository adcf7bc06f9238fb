// Chats with images, compared with the results of transformers' processors.
#include "core/sha256.h"
#include "tests/prompt/prompt_testing.h"

namespace ferry::prompt::image_prompt_golden_test {
namespace {

using nlohmann::json;

std::string digest(const std::string& text) {
  return to_hex(sha256(std::as_bytes(std::span(text))));
}

class ImagePrompts : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    auto opened = ImagePrompt::open(prompt_fixture(GetParam()));
    ASSERT_TRUE(opened) << opened.error().message;
    prompts.emplace(std::move(*opened));
    golden = prompt_goldens()[GetParam()];
  }
  Result<ExpandedPrompt> chat(const json& row) {
    return prompts->chat(row["chat"].dump(), "chat", {}, layouts_of(row["images"]));
  }

  std::optional<ImagePrompt> prompts;
  json golden;
};

// Returns the positions of the placeholders of all tiles.
std::vector<int64_t> places(const ExpandedPrompt& prompt, int64_t tokens_per_tile) {
  std::vector<int64_t> out;
  for (const auto& tiles : prompt.images) {
    for (const int64_t first : tiles) {
      for (int64_t i = 0; i < tokens_per_tile; ++i) out.push_back(first + i);
    }
  }
  return out;
}

std::vector<int64_t> places_of(const std::vector<int64_t>& ids, int64_t id) {
  std::vector<int64_t> out;
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] == id) out.push_back(static_cast<int64_t>(i));
  }
  return out;
}

TEST_P(ImagePrompts, EveryPromptHasTheTextAndTheIdsOfTheReference) {
  EXPECT_EQ(prompts->tokens_per_tile(), golden["tokens_per_tile"]);
  EXPECT_EQ(prompts->placeholder_id(), golden["placeholder_id"]);
  size_t equal = 0;
  for (const json& row : golden["cases"]) {
    const auto made = chat(row);
    if (!made) continue;
    SCOPED_TRACE(row["case"]);
    EXPECT_EQ(made->rendered, row["rendered"]);
    EXPECT_EQ(digest(made->text), row["sha256"]);
    EXPECT_EQ(made->ids, unrolled(row["ids"]));
    EXPECT_EQ(places(*made, prompts->tokens_per_tile()),
              places_of(made->ids, prompts->placeholder_id()));
    ASSERT_EQ(made->images.size(), row["images"].size());
    for (size_t i = 0; i < made->images.size(); ++i) {
      EXPECT_EQ(made->images[i].size(), row["images"][i][2]);
    }
    ++equal;
  }
  EXPECT_EQ(equal, std::string(GetParam()) == "smolvlm" ? 31U : 34U);
}

// Everything that the reference refuses is refused. Two prompts that it accepts are refused too.
TEST_P(ImagePrompts, WhatTheReferenceRefusesIsRefused) {
  for (const json& row : golden["cases"]) {
    const std::string name = row["case"];
    const bool lossy = name == "real_crop4.error_no_images" || name == "real_split.string_content";
    const auto made = chat(row);
    EXPECT_EQ(made.has_value(), !row.contains("error") && !lossy) << name;
    if (made) continue;
    EXPECT_EQ(made.error().code, ErrorCode::kBadInput) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(Processors, ImagePrompts, testing::Values("smolvlm", "internvl"),
                         [](const auto& test) { return std::string(test.param); });

}  // namespace
}  // namespace ferry::prompt::image_prompt_golden_test
