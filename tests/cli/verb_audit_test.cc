// ferry audit: the results for new bundles, compared with the file system and with `ferry inspect`.
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/cli/ferry_process.h"

namespace ferry::verb_audit_test {
namespace {

using Json = nlohmann::json;

class AuditVerb : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    dir_ = new TempDir;
    convert("f32", {});
    convert("int8", {"--quantize", "int8"});
    convert("shards", {"--shards", "2"});
  }
  static void TearDownTestSuite() { delete dir_; }

  static void convert(const std::string& name, std::vector<std::string> options) {
    options.insert(options.begin(), {"convert", fixture("llama3_tied"), "-o", *dir_ / name});
    const Outcome made = run_ferry(options);
    ASSERT_EQ(made.code, 0) << made.err;
  }

  static std::string bundle(const std::string& name) { return *dir_ / name; }

  // Returns the result, whatever the verdict.
  static Json audit(const std::string& target, std::vector<std::string> options = {}) {
    options.insert(options.begin(), {"audit", target, "--json"});
    const Outcome made = run_ferry(options);
    const Json document = made.json();
    EXPECT_EQ(document["verb"], "audit");
    EXPECT_EQ(document["exit"], made.code);
    EXPECT_EQ(document["schema"], 1);
    return document["result"];
  }

  static TempDir* dir_;
};
TempDir* AuditVerb::dir_ = nullptr;

TEST_F(AuditVerb, ABundleIsAccountedForToTheByte) {
  for (const char* name : {"f32", "int8", "shards"}) {
    const Json result = audit(bundle(name));
    std::vector<uint64_t> ends(result["files"].size(), 0);
    for (const Json& item : result["items"]) {
      if (item["bytes"] == 0) continue;
      uint64_t& end = ends[item["file"]];
      EXPECT_EQ(item["offset"], end) << item;
      end += item["bytes"].get<uint64_t>();
    }
    uint64_t total = 0;
    for (size_t i = 0; i < ends.size(); ++i) {
      const std::string path = result["files"][i]["path"];
      EXPECT_EQ(ends[i], std::filesystem::file_size(bundle(name) + "/" + path)) << path;
      total += ends[i];
    }
    EXPECT_EQ(ends.size(), files_in(bundle(name)).size());
    EXPECT_EQ(result["totals"]["bytes"], total);
    EXPECT_EQ(result["totals"]["unaccounted"], 0);
    int64_t account = result["account"]["source_bytes"];
    for (const Json& step : result["account"]["steps"]) account += step["bytes"].get<int64_t>();
    EXPECT_EQ(account, static_cast<int64_t>(total));
  }
}

TEST_F(AuditVerb, ABundledProgramIsAccountedForToTheByte) {
  const std::string file = *dir_ / "m.bpte";
  const Outcome made = run_ferry({"convert", fixture("llama3_tied"), "--to", "bpte", "-o", file,
                                  "--reference", fixture("llama3_tied/golden.safetensors")});
  ASSERT_EQ(made.code, 0) << made.err;
  const Json result = audit(file);
  uint64_t end = 0, weights = 0, cases = 0;
  for (const Json& item : result["items"]) {
    if (item["bytes"] == 0) continue;
    EXPECT_EQ(item["offset"], end) << item;
    end += item["bytes"].get<uint64_t>();
    if (item["kind"] == "constant") weights += item["bytes"].get<uint64_t>();
    if (item["kind"] == "reference") cases += item["bytes"].get<uint64_t>();
  }
  EXPECT_EQ(end, std::filesystem::file_size(file));
  EXPECT_EQ(result["totals"]["unaccounted"], 0);
  EXPECT_GT(weights, end / 2);
  EXPECT_GT(cases, 0u);
}

TEST_F(AuditVerb, ATiedHeadIsCountedOnceAndMarked) {
  size_t found = 0;
  const Json result = audit(bundle("f32"));
  for (const Json& item : result["items"]) {
    if (item.value("name", "") == "output.weight") ADD_FAILURE() << item;
    if (item.value("name", "") != "tok_embeddings.weight") continue;
    ++found;
    EXPECT_EQ(item["tied"], Json::array({"output.weight"}));
    EXPECT_EQ(item["component"], "embedding");
    EXPECT_EQ(item["sha256"].get<std::string>().size(), 64U);
  }
  EXPECT_EQ(found, 1U);
}

TEST_F(AuditVerb, ScalesAreNoElementsOfTheModel) {
  EXPECT_LT(audit(bundle("int8"))["totals"]["bytes"], audit(bundle("f32"))["totals"]["bytes"]);
  uint64_t elements[2] = {0, 0};
  for (const char* name : {"f32", "int8"}) {
    const Json result = audit(bundle(name));
    for (const Json& row : result["views"]["kind"]) {
      if (row["key"] == "weight") elements[name[0] == 'f' ? 0 : 1] = row["elements"];
    }
  }
  // An embedding in f32 and a head in i8 are two tensors.
  EXPECT_EQ(elements[1], elements[0] + 384 * 64);
}

TEST_F(AuditVerb, ABudgetDecidesTheExitCode) {
  const std::string target = bundle("f32");
  EXPECT_EQ(run_ferry({"audit", target, "--budget", "total=1GB,state=1GB,padding=50%"}).code, 0);
  const Outcome over =
      run_ferry({"audit", target, "--budget", "total=1kB,state=1,program=100%,manifest=1"});
  EXPECT_EQ(over.code, 1);
  EXPECT_EQ(over.error_lines(), 3U) << over.err;
  for (const char* name : {"total", "state", "manifest"}) {
    EXPECT_NE(over.err.find(std::string("ferry: ") + name + ": "), std::string::npos) << over.err;
  }
  EXPECT_EQ(run_ferry({"audit", target, "-q", "--budget", "total=1kB"}).error_lines(), 1U);
  write_bytes(*dir_ / "budget.json",
              R"({"ferry_budget": 1, "limits": [{"name": "all", "of": "total", "max_bytes": 1}]})");
  const Json result = audit(target, {"--budget", *dir_ / "budget.json"});
  EXPECT_EQ(result["budget"]["passed"], false);
  EXPECT_EQ(result["budget"]["limits"][0]["over"], result["totals"]["bytes"].get<uint64_t>() - 1);
}

TEST_F(AuditVerb, BudgetsThatMeanNothingAreRefused) {
  const std::string target = bundle("f32");
  EXPECT_EQ(run_ferry({"audit", target, "--budget", "totl=1GB"}).code, 2);
  EXPECT_EQ(run_ferry({"audit", target, "--budget", *dir_ / "absent.json"}).code, 5);
  write_bytes(*dir_ / "bad.json", R"({"ferry_budget": 1, "limits": [], "limit": []})");
  EXPECT_EQ(run_ferry({"audit", target, "--budget", *dir_ / "bad.json"}).code, 3);
  EXPECT_EQ(run_ferry({"audit", target, "--by", "size"}).code, 2);
  EXPECT_EQ(run_ferry({"audit", target, "--sort", "size"}).code, 2);
  EXPECT_EQ(run_ferry({"audit", target, "--rows", "0"}).code, 2);
  EXPECT_EQ(run_ferry({"audit", target, "--csv", "--md"}).code, 2);
  EXPECT_EQ(run_ferry({"audit", target, "--csv", "--memory"}).code, 2);
  EXPECT_EQ(run_ferry({"audit", target, "--md", "--by", "layer"}).code, 2);
  EXPECT_EQ(run_ferry({"audit", target, "--md", "--sort", "name"}).code, 2);
}

TEST_F(AuditVerb, ADiffIsTheSameFromTheArtifactAndFromItsDocument) {
  const Outcome saved = run_ferry({"audit", bundle("f32"), "--json"});
  write_bytes(*dir_ / "audit.json", saved.out);
  const Json direct = audit(bundle("int8"), {"--diff", bundle("f32")});
  const Json stored = audit(bundle("int8"), {"--diff", *dir_ / "audit.json"});
  EXPECT_EQ(direct["diff"], stored["diff"]);
  int64_t sum = 0;
  for (const Json& row : direct["diff"]["rows"]) sum += row["delta"].get<int64_t>();
  EXPECT_EQ(sum, direct["diff"]["delta"].get<int64_t>());
  EXPECT_LT(sum, 0);
  EXPECT_EQ(audit(bundle("f32"), {"--diff", *dir_ / "audit.json"})["diff"]["rows"].size(), 0U);
}

TEST_F(AuditVerb, ShardsOnlyMoveTensors) {
  const Json result = audit(bundle("shards"), {"--diff", bundle("f32")});
  EXPECT_GT(result["diff"]["moved"]["count"], 0);
  for (const Json& row : result["diff"]["rows"]) {
    if (!row.contains("item") || result["items"][row["item"].get<size_t>()]["kind"] != "weight") {
      continue;
    }
    EXPECT_EQ(row["change"], "moved") << row["name"];
    EXPECT_EQ(row["delta"], 0) << row["name"];
  }
}

TEST_F(AuditVerb, TheResultIsTheSameEveryTime) {
  const auto once = [&](const char* threads, std::vector<std::string> options) {
    options.insert(options.begin(), {"audit", bundle("int8"), "--threads", threads});
    return run_ferry(options).out;
  };
  for (const std::vector<std::string>& options :
       {std::vector<std::string>{"--json"}, {"--digests", "--json"}, {"--csv"}, {"--md"}}) {
    EXPECT_EQ(once("1", options), once("3", options));
  }
  EXPECT_EQ(once("1", {"--json"}).find(*dir_ / ""), std::string::npos);
}

TEST_F(AuditVerb, APageIsWrittenBesideTheResult) {
  const std::string page = *dir_ / "page.html";
  EXPECT_EQ(run_ferry({"audit", bundle("f32"), "--html", page, "--md"}).code, 0);
  const std::string text = read_bytes(page);
  EXPECT_NE(text.find("layers.0.attention.wq.weight"), std::string::npos);
  EXPECT_EQ(text.find("sha256\":"), std::string::npos);
}

TEST_F(AuditVerb, APageReplacesAPageOfAnAuditAndNothingElse) {
  const std::string page = *dir_ / "again.html", other = *dir_ / "config.json";
  const auto audit_to = [&](const std::string& path) {
    return run_ferry_once({"audit", bundle("f32"), "--html", path, "--md"}).code;
  };
  EXPECT_EQ(audit_to(page), 0);
  EXPECT_EQ(audit_to(page), 0);
  write_bytes(other, "{}");
  EXPECT_EQ(audit_to(other), 6);
  EXPECT_EQ(read_bytes(other), "{}");
  // A bundle has no other files than those of its manifest.
  EXPECT_EQ(audit_to(bundle("f32") + "/page.html"), 2);
  EXPECT_EQ(run_ferry({"check", bundle("f32")}).code, 0);
}

TEST_F(AuditVerb, DamagedFilesAreRefused) {
  const std::string file = *dir_ / "short.safetensors";
  std::string bytes = read_bytes(fixture("llama3_tied/model.safetensors"));
  bytes.resize(bytes.size() - 1);
  write_bytes(file, bytes);
  EXPECT_EQ(run_ferry({"audit", file}).code, 3);
  EXPECT_EQ(run_ferry({"audit", *dir_ / "absent"}).code, 5);
}

}  // namespace
}  // namespace ferry::verb_audit_test
