#include <gtest/gtest.h>

#include <filesystem>
#include <set>
#include <sstream>

#include "tests/cli/ferry_process.h"

namespace ferry::run_report_test {
namespace {

using Json = nlohmann::json;
using Line = std::vector<std::string>;

// Makes `dir`/b, a bundle with a tokenizer.
void make_bundle(const TempDir& dir) {
  Json tokenizer = Json::parse(read_bytes(fixture("tokenizer/llama3/tokenizer.json")));
  tokenizer["post_processor"] = nullptr;
  const std::string source = changed_checkpoint(dir, "llama3_tied", [](TensorFile&) {});
  write_bytes(source + "/tokenizer.json", tokenizer.dump());
  ASSERT_EQ(run_ferry({"convert", source, "-o", dir / "b"}).code, 0);
}

Outcome run(const TempDir& dir, const Line& options) {
  Line line = {"run", dir / "b", "--prompt", "He", "--max-new", "12", "--ignore-eos"};
  line.insert(line.end(), options.begin(), options.end());
  return run_ferry(line);
}

// Returns the text after `start`, up to the end of the line.
std::string rest_of_line(const std::string& text, const std::string& start) {
  const size_t at = text.find(start);
  if (at == std::string::npos) return {};
  const size_t begin = at + start.size();
  return text.substr(begin, text.find('\n', begin) - begin);
}

TEST(RunReport, RunnerStatsAreAFileAndALine) {
  const TempDir dir;
  make_bundle(dir);
  const Outcome outcome = run(dir, {"--stats-json", dir / "s.json", "--stats"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const std::string text = read_bytes(dir / "s.json");
  EXPECT_EQ(text.find('\n'), text.size() - 1) << "one line";
  Json stats = Json::parse(text);
  EXPECT_EQ(stats["prompt_tokens"], 2);
  EXPECT_EQ(stats["generated_tokens"], 11);
  EXPECT_EQ(stats["SCALING_FACTOR_UNITS_PER_SECOND"], 1000);
  const std::vector<std::string> moments = {"model_load_start_ms", "model_load_end_ms",
                                            "inference_start_ms", "prompt_eval_end_ms",
                                            "inference_end_ms"};
  for (size_t i = 1; i < moments.size(); ++i) {
    EXPECT_LE(stats[moments[i - 1]].get<int64_t>(), stats[moments[i]].get<int64_t>()) << moments[i];
  }
  EXPECT_EQ(stats["first_token_ms"], stats["prompt_eval_end_ms"]);
  EXPECT_LE(stats["prompt_peak_rss_bytes"], stats["peak_rss_bytes"]);
  // The line for official runners has only the keys that they have.
  stats.erase("prompt_peak_rss_bytes");
  stats.erase("peak_rss_bytes");
  EXPECT_EQ(Json::parse(rest_of_line(outcome.err, "PyTorchObserver ")), stats);
}

// A line of folded stacks: the path, and microseconds.
TEST(RunReport, AProfileHasTheTimeOfEveryOperatorAndWeight) {
  const TempDir dir;
  make_bundle(dir);
  const Outcome plain = run(dir, {"--quiet"});
  const Outcome outcome = run(dir, {"--profile", dir / "p.txt", "--quiet"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(outcome.out, plain.out);
  std::istringstream lines(read_bytes(dir / "p.txt"));
  std::set<std::string> paths;
  double microseconds = 0;
  for (std::string path; lines >> path;) {
    double value = -1;
    ASSERT_TRUE(lines >> value) << path;
    EXPECT_GE(value, 0);
    EXPECT_TRUE(paths.insert(path).second) << path;
    microseconds += value;
  }
  for (const char* stage : {"prompt", "new_tokens"}) {
    EXPECT_TRUE(paths.contains(std::string(stage) +
                               ";forward;aten::linear.out;layers.*.attention.wq.weight"));
    EXPECT_TRUE(paths.contains(std::string(stage) + ";forward;llama::custom_sdpa.out"));
  }
  EXPECT_TRUE(paths.contains("between_instructions"));
  EXPECT_GT(microseconds, 0);

  ASSERT_EQ(run(dir, {"--profile", dir / "p.html", "--quiet"}).code, 0);
  const std::string page = read_bytes(dir / "p.html");
  EXPECT_TRUE(page.starts_with("<!doctype html>"));
  EXPECT_NE(page.find("layers.*.attention.wq.weight"), std::string::npos);
  EXPECT_EQ(page.find("<script"), std::string::npos);
}

TEST(RunReport, OneTokenIsNoRate) {
  const TempDir dir;
  make_bundle(dir);
  const Json stats = run_ferry({"run", dir / "b", "--tokens", "1,2", "--max-new", "1", "--json"})
                         .json()["result"]["stats"];
  EXPECT_TRUE(stats["new_tokens_per_second"].is_null());
  EXPECT_GT(stats["prompt_tokens_per_second"], 0);
}

TEST(RunReport, NewFilesAreRefusedBeforeTheWork) {
  const TempDir dir;
  write_bytes(dir / "there", "mine");
  for (const char* option : {"--stats-json", "--dump-logits", "--profile"}) {
    const Outcome outcome =
        run_ferry({"run", dir / "no_bundle", "--tokens", "1", option, dir / "there"});
    EXPECT_EQ(outcome.code, 6);
    EXPECT_EQ(outcome.err, "ferry: error: " + (dir / "there") + ": cannot create: File exists\n");
  }
  EXPECT_EQ(read_bytes(dir / "there"), "mine");
}

class RunThresholds : public testing::Test {
 protected:
  void SetUp() override { make_bundle(dir_); }
  Outcome run_with(const Json& thresholds, const Line& options = {"--quiet"}) {
    write_bytes(dir_ / "t.json", thresholds.dump());
    Line line = {"--thresholds", dir_ / "t.json"};
    line.insert(line.end(), options.begin(), options.end());
    return run(dir_, line);
  }
  size_t size_of(const std::string& file) const {
    return std::filesystem::file_size(dir_ / ("b/" + file));
  }
  size_t total() const {
    size_t bytes = 0;
    for (const auto& [name, content] : files_in(dir_ / "b")) bytes += content.size();
    return bytes;
  }
  size_t decoder() const {
    return size_of("decoder-00001-of-00001.pte") + size_of("decoder-00001-of-00001.ptd");
  }
  TempDir dir_;
};

TEST_F(RunThresholds, MetIsZero) {
  const std::string text = run(dir_, {"--json"}).json()["result"]["text"];
  const Json thresholds = {{"max_bytes", {{"total", total()}, {"text_decoder", decoder()}}},
                           {"expect_text", {text.substr(0, 1), text}}};
  const Outcome outcome = run_with(thresholds);
  EXPECT_EQ(outcome.code, 0);
  EXPECT_EQ(outcome.out, text + "\n");
  EXPECT_EQ(outcome.err, "");
  EXPECT_TRUE(run_with(thresholds, {}).err.ends_with("ferry: no threshold of 4 is missed\n"));
  EXPECT_EQ(run_with(thresholds, {"--json"}).json()["result"]["thresholds_met"], true);
}

TEST_F(RunThresholds, EachMissedOneIsALineAndTheCodeIsOne) {
  const std::string text = run(dir_, {"--json"}).json()["result"]["text"];
  const Json thresholds = {{"max_bytes", {{"total", total() - 1}, {"text_decoder", decoder() - 1}}},
                           {"expect_text", {text, "no such text"}}};
  const Outcome outcome = run_with(thresholds);
  EXPECT_EQ(outcome.code, 1);
  EXPECT_EQ(outcome.out, text + "\n");
  const auto line = [](const std::string& field, size_t bytes) {
    return "ferry: missed: " + field + ": measured " + std::to_string(bytes) +
           " bytes, threshold at most " + std::to_string(bytes - 1) + " bytes\n";
  };
  EXPECT_EQ(outcome.err, line("max_bytes.text_decoder", decoder()) +
                             line("max_bytes.total", total()) +
                             "ferry: missed: expect_text: 'no such text' is not in the text\n");
  const Outcome with_json = run_with(thresholds, {"--json"});
  EXPECT_EQ(with_json.code, 1);
  EXPECT_EQ(with_json.err, outcome.err);
  const Json document = with_json.json()["result"];
  EXPECT_EQ(document["thresholds_met"], false);
  EXPECT_EQ(document["thresholds"],
            Json::parse(R"([{"field": "max_bytes.text_decoder", "met": false, "unit": "bytes"},
                            {"field": "max_bytes.total", "met": false, "unit": "bytes"},
                            {"field": "expect_text", "met": true},
                            {"field": "expect_text", "met": false}])")
                .patch(Json::array({
                    {{"op", "add"}, {"path", "/0/measured"}, {"value", decoder()}},
                    {{"op", "add"}, {"path", "/0/threshold"}, {"value", decoder() - 1}},
                    {{"op", "add"}, {"path", "/1/measured"}, {"value", total()}},
                    {{"op", "add"}, {"path", "/1/threshold"}, {"value", total() - 1}},
                    {{"op", "add"}, {"path", "/2/text"}, {"value", text}},
                    {{"op", "add"}, {"path", "/3/text"}, {"value", "no such text"}},
                })));
}

TEST_F(RunThresholds, WhatCannotBeJudgedIsRefused) {
  const std::string path = dir_ / "t.json";
  const std::vector<std::tuple<Json, int, std::string>> cases = {
      {{{"cpu_min_tokens", 1}}, 3, "unknown field 'cpu_min_tokens'"},
      {{{"cpu_max_load_ms", "1"}}, 3, "cpu_max_load_ms is not a number of 0 or more"},
      {{{"max_bytes", {{"vision_encoder", 1}}}},
       3,
       "max_bytes.vision_encoder: the bundle has no such component; it has text_decoder"}};
  for (const auto& [thresholds, code, message] : cases) {
    const Outcome outcome = run_with(thresholds);
    EXPECT_EQ(outcome.code, code);
    EXPECT_EQ(outcome.out, "");
    EXPECT_EQ(outcome.err, "ferry: error: " + path + ": " + message + "\n");
  }
  write_bytes(path, R"({"expect_text": "a"})");
  const Outcome tokens = run_ferry({"run", dir_ / "b", "--tokens", "1", "--thresholds", path});
  EXPECT_EQ(tokens.code, 2);
  EXPECT_EQ(tokens.err, "ferry: error: " + path + ": expect_text needs a prompt of text\n");
  EXPECT_EQ(run(dir_, {"--thresholds", dir_ / "none"}).code, 5);
}

// The fields are checked before the bundle is opened.
TEST_F(RunThresholds, FieldsAreCheckedBeforeTheBundle) {
  write_bytes(dir_ / "t.json", R"({"cpu_min_tokens": 1})");
  const Outcome outcome =
      run_ferry({"run", dir_ / "no_bundle", "--prompt", "He", "--thresholds", dir_ / "t.json"});
  EXPECT_EQ(outcome.code, 3);
  EXPECT_NE(outcome.err.find("unknown field"), std::string::npos) << outcome.err;
}

}  // namespace
}  // namespace ferry::run_report_test
