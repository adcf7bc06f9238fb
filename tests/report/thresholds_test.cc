#include "report/thresholds.h"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

namespace ferry::report::thresholds_test {
namespace {

using packer::Manifest;

packer::ManifestFile file(const std::string& path, uint64_t bytes) {
  return {path, bytes, "sha256", std::string(packer::kZeroDigest)};
}

packer::ManifestProgram program(const std::string& name, const std::vector<std::string>& data) {
  packer::ManifestProgram program;
  program.file = name;
  program.data_files = data;
  return program;
}

// Two components share a data file, and there is a tokenizer.
Manifest manifest() {
  Manifest manifest;
  manifest.components = {
      {"vision_encoder", {program("v.pte", {"shared.ptd"})}},
      {"text_decoder", {program("d1.pte", {"d.ptd", "shared.ptd"}), program("d2.pte", {"d.ptd"})}}};
  manifest.files = {file("v.pte", 1),    file("shared.ptd", 20), file("d1.pte", 300),
                    file("d.ptd", 4000), file("d2.pte", 50000),  file("tokenizer.json", 600000)};
  return manifest;
}

Thresholds parsed(const std::string& text) {
  Result<Thresholds> thresholds = Thresholds::parse(text, "t.json");
  EXPECT_TRUE(thresholds) << thresholds.error().message;
  return std::move(thresholds).value();
}

std::map<std::string, bool> verdicts(const Thresholds& thresholds, const GenerationStats& stats,
                                     std::string_view text = {}) {
  std::map<std::string, bool> verdicts;
  for (const Judgement& judgement : thresholds.judge(stats, manifest(), text)) {
    verdicts[judgement.field + judgement.text] = judgement.met;
  }
  return verdicts;
}

TEST(Thresholds, BytesAreThoseOfTheFilesOfAComponent) {
  const Thresholds thresholds =
      parsed(R"({"max_bytes": {"total": 0, "text_decoder": 54320, "vision_encoder": 20}})");
  EXPECT_TRUE(thresholds.check_components(manifest()));
  std::map<std::string, double> measured;
  for (const Judgement& judgement : thresholds.judge({}, manifest(), {})) {
    measured[judgement.field] = judgement.measured;
    EXPECT_EQ(judgement.met, judgement.field == "max_bytes.text_decoder") << judgement.field;
    EXPECT_EQ(judgement.unit, "bytes");
  }
  EXPECT_EQ(measured["max_bytes.text_decoder"], 54320);
  EXPECT_EQ(measured["max_bytes.vision_encoder"], 21);
  EXPECT_EQ(measured["max_bytes.total"],
            654321 + static_cast<double>(packer::write_manifest(manifest()).size()));
}

TEST(Thresholds, ComponentsThatAreNotThereAreRefused) {
  const Status status =
      parsed(R"({"max_bytes": {"token_embedding": 1}})").check_components(manifest());
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().message,
            "t.json: max_bytes.token_embedding: the bundle has no such component; it has "
            "vision_encoder, text_decoder");
}

TEST(Thresholds, LimitsThemselvesAreMet) {
  GenerationStats stats;
  stats.prompt_tokens = 81;
  stats.generated_tokens = 454;
  stats.load_end = stats.inference_start = std::chrono::seconds(2);
  stats.prompt_eval_end = stats.inference_start + std::chrono::milliseconds(500);
  stats.inference_end = stats.prompt_eval_end + std::chrono::seconds(4);
  stats.peak_rss = int64_t{3} << 20;
  const Thresholds met = parsed(
      R"({"cpu_min_prefill_tokens_per_second": 162, "cpu_min_decode_tokens_per_second": 113.5,
          "cpu_max_time_to_first_token_ms": 500, "cpu_max_load_ms": 2000,
          "cpu_max_peak_rss_mib": 3})");
  const Thresholds missed = parsed(
      R"({"cpu_min_prefill_tokens_per_second": 162.1, "cpu_min_decode_tokens_per_second": 113.6,
          "cpu_max_time_to_first_token_ms": 499, "cpu_max_load_ms": 1999,
          "cpu_max_peak_rss_mib": 2.9})");
  EXPECT_EQ(verdicts(met, stats).size(), 5U);
  for (const auto& [field, verdict] : verdicts(met, stats)) EXPECT_TRUE(verdict) << field;
  for (const auto& [field, verdict] : verdicts(missed, stats)) EXPECT_FALSE(verdict) << field;
}

// Runners report 0 ms, and so a rate of 0, for work that takes less than a millisecond.
TEST(Thresholds, TimesBelowAMillisecondCount) {
  GenerationStats stats;
  stats.generated_tokens = 3;
  stats.inference_end = std::chrono::microseconds(600);
  EXPECT_EQ(RunnerStats(stats).decode_rate(), 0);
  EXPECT_TRUE(verdicts(parsed(R"({"cpu_min_decode_tokens_per_second": 4999})"),
                       stats)["cpu_min_decode_tokens_per_second"]);
}

TEST(Thresholds, EveryTextMustOccur) {
  const Thresholds thresholds = parsed(R"({"expect_text": ["city", "Cats"]})");
  EXPECT_TRUE(thresholds.needs_text());
  EXPECT_EQ(verdicts(thresholds, {}, "two cats in a city"),
            (std::map<std::string, bool>{{"expect_textcity", true}, {"expect_textCats", false}}));
  EXPECT_FALSE(parsed(R"({"cpu_max_load_ms": 1})").needs_text());
}

TEST(Thresholds, FieldsThatCannotBeJudgedAreRefused) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"[]", "the document is not an object"},
      {"{}", "there are no thresholds in it"},
      {R"({"cpu_min_tokens": 1})", "unknown field 'cpu_min_tokens'"},
      {R"({"max_bytes.total": 1})", "unknown field 'max_bytes.total'"},
      {R"({"cpu_max_load_ms": "1"})", "cpu_max_load_ms is not a number of 0 or more"},
      {R"({"cpu_max_load_ms": -0.1})", "cpu_max_load_ms is not a number of 0 or more"},
      {R"({"cpu_max_load_ms": true})", "cpu_max_load_ms is not a number of 0 or more"},
      {R"({"max_bytes": 5})", "max_bytes is not an object of components and their bytes"},
      {R"({"max_bytes": {}})", "max_bytes is not an object of components and their bytes"},
      {R"({"max_bytes": {"total": 1.5}})", "max_bytes.total is not a whole number of 0 or more"},
      {R"({"max_bytes": {"total": -1}})", "max_bytes.total is not a whole number of 0 or more"},
      {R"({"expect_text": ""})",
       "expect_text is not a text or a list of texts, none of them empty"},
      {R"({"expect_text": []})",
       "expect_text is not a text or a list of texts, none of them empty"},
      {R"({"expect_text": ["a", 1]})",
       "expect_text is not a text or a list of texts, none of them empty"},
  };
  for (const auto& [text, message] : cases) {
    const Result<Thresholds> thresholds = Thresholds::parse(text, "t.json");
    ASSERT_FALSE(thresholds) << text;
    EXPECT_EQ(thresholds.error().code, ErrorCode::kBadInput);
    EXPECT_EQ(thresholds.error().message, "t.json: " + message);
  }
}

}  // namespace
}  // namespace ferry::report::thresholds_test
