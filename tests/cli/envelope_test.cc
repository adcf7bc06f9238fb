// The documents of --json against docs/schemas (docs/command_line.md, "Documents of --json").
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "tests/cli/ferry_process.h"
#include "tests/cli/schema_check.h"
#include "tests/cli/verb_list.h"

namespace ferry::envelope_test {
namespace {

using nlohmann::json;
using Line = std::vector<std::string>;

Line operator+(Line line, const Line& more) {
  line.insert(line.end(), more.begin(), more.end());
  return line;
}

std::string schema_of(std::string verb) {
  std::ranges::replace(verb, ' ', '-');
  return verb + ".json";
}

// Runs the line and returns its document, which must match its schema.
json document_of(const Line& line, int code) {
  SCOPED_TRACE(text_of(line));
  const Outcome outcome = run_ferry_once(line + Line{"--json"});
  EXPECT_EQ(outcome.code, code) << outcome.err;
  json document = outcome.json();
  EXPECT_EQ(document["exit"], code);
  EXPECT_EQ(document["ok"], code == 0);
  for (const std::string& problem :
       schema_problems(schema_of(document.value("verb", "none")), document)) {
    ADD_FAILURE() << problem;
  }
  return document;
}

TEST(SchemaCheck, FindsWhatDoesNotFit) {
  const json good = document_of({"check", "/nonexistent"}, 5);
  json bad = good;
  bad["exit"] = "5";
  bad["error"]["code"] = "sad";
  bad["error"].erase("message");
  bad["error"]["mood"] = 1;
  bad.erase("schema");
  EXPECT_EQ(schema_problems("check.json", bad).size(), 5U);
  json other = good;
  other["verb"] = "inspect";
  EXPECT_EQ(schema_problems("check.json", other).size(), 1U);
}

TEST(JsonContract, EveryVerbHasASchemaForItsErrorsToo) {
  for (const Line& verb : all_verbs()) {
    const std::string file = fixture("../docs/schemas/" + schema_of(text_of(verb)));
    const bool is_leaf = std::filesystem::exists(file);
    const Outcome help = run_ferry(verb + Line{"--help"});
    EXPECT_EQ(is_leaf, help_entries(help.out, "Verbs:").empty()) << file;
    if (!is_leaf) continue;
    const json document = document_of(verb + Line{"--frobnicate"}, 2);
    EXPECT_EQ(document["verb"], text_of(verb));
    EXPECT_EQ(document["error"]["code"], "usage");
    EXPECT_TRUE(document["result"].is_null());
  }
}

TEST(JsonContract, ALineWithoutAVerbHasTheEnvelope) {
  const json document = run_ferry_once({"--json", "frobnicate"}).json();
  EXPECT_TRUE(schema_problems("envelope.json", document).empty());
  EXPECT_TRUE(document["verb"].is_null());
  EXPECT_EQ(document["ferry"], run_ferry({"--version"})
                                   .out.substr(6, std::string::npos - 7)
                                   .substr(0, document["ferry"].get<std::string>().size()));
}

class JsonDocuments : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    dir_ = new TempDir;
    bundle_ = *dir_ / "bundle";
    ASSERT_EQ(run_ferry({"convert", fixture("llama3_tied"), "-o", bundle_, "--reference",
                         fixture("llama3_tied/golden.safetensors")})
                  .code,
              0);
  }
  static void TearDownTestSuite() { delete dir_; }

  static TempDir* dir_;
  static std::string bundle_;
};
TempDir* JsonDocuments::dir_ = nullptr;
std::string JsonDocuments::bundle_;

TEST_F(JsonDocuments, Convert) {
  const Line line = {"convert", fixture("llama3_tied"), "-o", *dir_ / "made"};
  const json made = document_of(line, 0)["result"];
  EXPECT_EQ(made["path"], *dir_ / "made");
  EXPECT_EQ(made["source"], fixture("llama3_tied"));
  EXPECT_EQ(made["dtype"], "keep");
  EXPECT_EQ(made["up_to_date"], false);
  EXPECT_GT(made["memory"]["activation_bytes"], 0);
  uint64_t bytes = 0;
  for (const auto& entry : std::filesystem::directory_iterator(*dir_ / "made")) {
    bytes += entry.file_size();
  }
  EXPECT_EQ(made["bytes"], bytes);
  EXPECT_EQ(document_of(line, 6)["error"]["code"], "exists");
  EXPECT_EQ(document_of(line + Line{"--if-changed"}, 0)["result"]["up_to_date"], true);
  const json planned = document_of({"convert", fixture("llama3_tied"), "-n"}, 0)["result"];
  EXPECT_TRUE(planned["path"].is_null());
  document_of({"convert", fixture("llama3_tied"), "-n", "--quantize", "8da4w-g32"}, 0);
}

TEST_F(JsonDocuments, ConvertOfKeysThatDoNotFit) {
  const TempDir dir;
  const std::string source = changed_checkpoint(dir, "llama3_tied", [](TensorFile& file) {
    file.rename("model.norm.weight", "model.nurm.weight");
  });
  const json document = document_of({"convert", source, "-n"}, 3);
  EXPECT_EQ(document["error"]["details"].size(), 2U);
  EXPECT_EQ(document["result"]["problems"].size(), 2U);
}

TEST_F(JsonDocuments, Inspect) {
  EXPECT_EQ(document_of({"inspect", bundle_}, 0)["result"]["kind"], "bundle");
  document_of({"inspect", fixture("llama3_tied")}, 0);
  document_of({"inspect", bundle_ + "/manifest.json"}, 3);
  for (const auto& entry : std::filesystem::directory_iterator(bundle_)) {
    const std::string kind = entry.path().extension();
    if (kind == ".pte" || kind == ".ptd") document_of({"inspect", entry.path()}, 0);
  }
}

TEST_F(JsonDocuments, Check) {
  EXPECT_EQ(document_of({"check", bundle_}, 0)["result"]["path"], bundle_);
  const TempDir dir;
  std::filesystem::copy(bundle_, dir / "b");
  write_bytes(dir / "b/config.json", "{}");
  const json problem = document_of({"check", dir / "b"}, 1)["result"]["problems"][0];
  EXPECT_EQ(problem["path"], "config.json");
  EXPECT_EQ(problem["code"], "bad_input");
  EXPECT_EQ(document_of({"check", fixture("llama3_tied")}, 0)["result"]["kind"], "checkpoint");
  for (const auto& entry : std::filesystem::directory_iterator(bundle_)) {
    const std::string kind = entry.path().extension();
    if (kind == ".pte" || kind == ".ptd") document_of({"check", entry.path()}, 0);
  }
}

TEST_F(JsonDocuments, Batch) {
  const TempDir dir;
  std::filesystem::create_directories(dir / "in/empty");
  std::filesystem::copy(fixture("llama3_tied"), dir / "in/good");
  write_bytes(dir / "in/empty/config.json", "{}");
  const json planned = document_of(
      {"batch", "plan", dir / "in", "--out-dir", dir / "out", "--verify", "checkpoint"}, 0);
  EXPECT_EQ(planned["result"]["left_out"].size(), 1U);
  write_bytes(dir / "p", planned["result"]["plan"]);
  document_of({"batch", "status", dir / "p"}, 0);
  document_of({"batch", "run", dir / "p"}, 0);
  const json report = document_of({"batch", "report", dir / "p"}, 0);
  EXPECT_EQ(report["result"]["tasks"][0]["parity"]["parity"], true) << report;
  document_of({"batch", "status", dir / "p"}, 0);
  document_of({"batch", "slurm", dir / "p"}, 0);
  document_of({"batch", "k8s", dir / "p", "--image", "i", "--claim", "c"}, 0);
}

TEST_F(JsonDocuments, Sign) { document_of({"sign", bundle_, "--key", "/nonexistent"}, 5); }

TEST_F(JsonDocuments, Run) {
  const Line line = {"run", bundle_, "--tokens", "1,2", "--max-new", "3"};
  const json result = document_of(line, 0)["result"];
  EXPECT_EQ(result["path"], bundle_);
  EXPECT_EQ(result["tokens"].size(), 3U);
  write_bytes(*dir_ / "limits.json", R"({"max_bytes": {"total": 1}})");
  document_of(line + Line{"--thresholds", *dir_ / "limits.json"}, 1);
  document_of({"run", "/nonexistent", "--tokens", "1"}, 5);
}

TEST_F(JsonDocuments, Verify) {
  EXPECT_EQ(document_of({"verify", bundle_}, 0)["result"]["path"], bundle_);
  EXPECT_EQ(document_of({"verify", bundle_, "--tolerance", "0"}, 1)["result"]["parity"], false);
  document_of({"verify", bundle_, "--checkpoint", fixture("llama3_tied")}, 0);
  document_of({"verify", bundle_, "--against", bundle_}, 0);
  write_bytes(*dir_ / "ids.txt", "1,2,3,4,5,6\n");
  document_of({"verify", bundle_, "--perplexity", *dir_ / "ids.txt"}, 0);
}

TEST_F(JsonDocuments, TheOthers) {
  document_of({"help", "convert"}, 0);
  document_of({"completion", "bash"}, 0);
  document_of({"audit", bundle_}, 0);
  document_of({"audit", bundle_, "--memory", "--digests", "--budget", "total=1B"}, 1);
  for (const auto& entry : std::filesystem::directory_iterator(bundle_)) {
    if (entry.path().extension() != ".pte") continue;
    document_of({"execute", entry.path(), "--method", "get_vocab_size"}, 0);
  }
  document_of({"execute", "/nonexistent.pte"}, 5);
  document_of(
      {"preprocess", "/nonexistent.png", "--checkpoint", fixture("llama3_tied"), "-o", *dir_ / "x"},
      5);
}

TEST_F(JsonDocuments, OfOlderVerbsHaveTheirMembersTwice) {
  const json document = document_of({"verify", bundle_}, 0);
  for (const auto& [name, member] : document["result"].items()) {
    EXPECT_EQ(document.value(name, json()), member) << name;
  }
  const json newer = document_of({"help"}, 0);
  EXPECT_FALSE(newer.contains("text"));
  EXPECT_EQ(newer.size(), 7U);
}

TEST_F(JsonDocuments, ErrorsNameFileTensorAndOffset) {
  const TempDir dir;
  const std::string source = changed_checkpoint(dir, "llama3_tied", [](TensorFile&) {});
  const std::string file = source + "/model.safetensors";
  std::filesystem::resize_file(file, std::filesystem::file_size(file) - 4);
  const json error = document_of({"inspect", source}, 3)["error"];
  EXPECT_EQ(error["file"], file);
  EXPECT_TRUE(error["tensor"].is_string()) << error;
  EXPECT_TRUE(error["offset"].is_number_integer()) << error;
  const json absent = document_of({"inspect", dir / "a: b"}, 5)["error"];
  EXPECT_EQ(absent["file"], dir / "a: b") << absent;
  const json usage = document_of({"convert", source}, 2)["error"];
  EXPECT_FALSE(usage.contains("file"));
}

}  // namespace
}  // namespace ferry::envelope_test
