#include <gtest/gtest.h>

#include "converters/config/model_config.h"
#include "converters/family.h"

namespace ferry::converters {
namespace {

TEST(FindFamily, TheTypeOfTheTextPartComesFirst) {
  ModelConfig config;
  config.model_type = "gemma3";
  config.text_type = "llama";
  const auto family = find_family(config, "config.json");
  ASSERT_TRUE(family);
  EXPECT_EQ((*family)->model_types.front(), "llama");
  config.text_type = "none";
  EXPECT_EQ((*find_family(config, "config.json"))->model_types.front(), "gemma3_text");
}

TEST(FindFamily, TheMessageNamesTheFile) {
  ModelConfig config;
  config.model_type = config.text_type = "bert";
  const auto family = find_family(config, "dir/other.json");
  ASSERT_FALSE(family);
  EXPECT_EQ(family.error().code, ErrorCode::kUnsupported);
  EXPECT_EQ(family.error().message.find("dir/other.json: 'model_type' is 'bert': not supported"),
            0U);
}

}  // namespace
}  // namespace ferry::converters
