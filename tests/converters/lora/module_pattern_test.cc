#include "converters/lora/module_pattern.h"

#include <gtest/gtest.h>

namespace ferry::converters::module_pattern_test {
namespace {

constexpr std::string_view kModule = "model.layers.12.self_attn.q_proj";

// Python: bool(re.match(rf"(.*\.)?({pattern})$", "model.layers.12.self_attn.q_proj")).
TEST(ModulePattern, MatchesTheEndsThatPythonMatches) {
  const struct {
    const char* pattern;
    bool ends;
  } cases[] = {
      {"q_proj", true},
      {"proj", false},
      {"self_attn.q_proj", true},
      {"self_attn", false},
      {".*proj", true},
      {"[qk]_proj", true},
      {"[^q]_proj", false},
      {R"(layers\.\d+\.self_attn\.(q|k)_proj)", true},
      {R"(layers\.\d\.self_attn\..*)", false},
      {"^model.layers.12.*", true},
      {"^layers.*", false},
      {"q_proj|nothing", true},
      {"12.{2,20}proj", true},
      {"12.{2,5}proj", false},
      {R"([\w.]+)", true},
      {"(?:self|cross)_attn.q_proj$", true},
      {"", false},
  };
  for (const auto& [pattern, ends] : cases) {
    const auto compiled = ModulePattern::compile(pattern, "f");
    ASSERT_TRUE(compiled) << pattern;
    const auto found = compiled->ends(kModule);
    ASSERT_TRUE(found) << pattern;
    EXPECT_EQ(*found, ends) << pattern;
  }
}

TEST(ModulePattern, RefusesWhatPythonReadsDifferently) {
  for (const char* pattern : {"(?=q).*", R"((q)\1)", "(?i)Q_proj", "[[:alpha:]]+", R"(\bq)",
                              "q{,3}", "(*UTF)q", "[]q]", "q\xC3\xA9"}) {
    const auto compiled = ModulePattern::compile(pattern, "f: 'rank_pattern'");
    ASSERT_FALSE(compiled) << pattern;
    EXPECT_EQ(compiled.error().code, ErrorCode::kUnsupported) << pattern;
    EXPECT_TRUE(compiled.error().message.starts_with("f: 'rank_pattern': ")) << pattern;
  }
  for (const char* pattern : {"(q", "q)", "[q", "*q", "q\\"}) {
    EXPECT_EQ(ModulePattern::compile(pattern, "f").error().code, ErrorCode::kBadInput) << pattern;
  }
}

TEST(ModulePattern, TakesBoundedWork) {
  const auto nested = ModulePattern::compile("(((a*)*)*)*b", "f");
  ASSERT_TRUE(nested);
  const auto found = nested->ends(std::string(4000, 'a'));
  EXPECT_TRUE(!found || !*found);
  EXPECT_FALSE(ModulePattern::compile(std::string(1025, 'a'), "f"));
}

}  // namespace
}  // namespace ferry::converters::module_pattern_test
