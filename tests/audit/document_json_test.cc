// Budgets, comparisons and the document, of audits that are made by hand.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "audit/budget.h"
#include "audit/document.h"
#include "audit/findings.h"

namespace ferry::audit::document_json_test {
namespace {

using Json = nlohmann::json;

Leaf tensor(uint32_t file, uint64_t offset, uint64_t bytes, const std::string& name,
            const std::string& sha256 = {}) {
  return Leaf{.file = file,
              .offset = offset,
              .bytes = bytes,
              .kind = LeafKind::kWeight,
              .name = name,
              .component = "attn.q",
              .layer = 0,
              .dtype = "f32",
              .shape = {static_cast<int64_t>(bytes / 4)},
              .elements = bytes / 4,
              .sha256 = sha256};
}

Leaf other(uint32_t file, uint64_t offset, uint64_t bytes, LeafKind kind) {
  return Leaf{.file = file, .offset = offset, .bytes = bytes, .kind = kind};
}

Audit small_audit() {
  Audit audit{.name = "old", .type = "checkpoint"};
  audit.files = {{"a.safetensors", 100, "safetensors"}, {"b.safetensors", 60, "safetensors"}};
  audit.leaves = {other(0, 0, 20, LeafKind::kHeader), tensor(0, 20, 80, "x", "aa"),
                  other(1, 0, 20, LeafKind::kHeader), tensor(1, 20, 40, "y", "bb")};
  audit.leaves[1].tied = {"x_too"};
  audit.memory.emplace();
  audit.memory->methods = {{.file = 0, .name = "m", .activation_bytes = 7, .state_bytes = 5},
                           {.file = 0, .name = "n", .activation_bytes = 9, .state_bytes = 5}};
  return audit;
}

// -- budgets

struct SizeCase {
  const char* text;
  double bytes;  // -1: the audit has no such size; percentages are negative
};

TEST(Budget, SizesAreReadStrictly) {
  for (const auto& [text, bytes] :
       {SizeCase{"900MB", 900e6}, SizeCase{"1.5 GiB", 1.5 * (1 << 30)}, SizeCase{"0", 0},
        SizeCase{"12B", 12}, SizeCase{"4 kB", 4000}}) {
    Limit limit;
    ASSERT_TRUE(set_limit(limit, text)) << text;
    EXPECT_EQ(static_cast<double>(limit.bytes.value_or(0)), bytes) << text;
    EXPECT_FALSE(limit.percent);
  }
  Limit limit;
  ASSERT_TRUE(set_limit(limit, "0.5%"));
  EXPECT_EQ(limit.percent, 0.5);
  EXPECT_FALSE(limit.bytes);
  for (const char* text : {"", "MB", "-1", "1e9", "1 mb", "1  MB", "nan", "inf", "0x10", "1MB ",
                           "99999999999999TB", "%", "1%%"}) {
    EXPECT_FALSE(set_limit(limit, text)) << text;
  }
}

int64_t size_of(const std::string& of) {
  const Audit audit = small_audit();
  const auto limits = read_budget(of + "=1");
  EXPECT_TRUE(limits) << of;
  const auto results = evaluate(*limits, audit, nullptr);
  EXPECT_TRUE(results) << of;
  return results->front().size;
}

TEST(Budget, PartsAreMeasured) {
  EXPECT_EQ(size_of("total"), 160);
  EXPECT_EQ(size_of("weight"), 120);
  EXPECT_EQ(size_of("kind:header"), 40);
  EXPECT_EQ(size_of("file:b.*"), 60);
  EXPECT_EQ(size_of("component:attn.?"), 120);
  EXPECT_EQ(size_of("tensor:x"), 80);
  EXPECT_EQ(size_of("layer:0"), 120);
  EXPECT_EQ(size_of("dtype:f16"), 0);
  EXPECT_EQ(size_of("activations"), 9);  // methods of a program share their memory
  EXPECT_EQ(size_of("memory"), 14);
  EXPECT_EQ(size_of("finding:duplicate"), 0);
}

TEST(Budget, WhatMeansNothingIsRefused) {
  for (const char* spec : {"=1", "total=", "totl=1", "kind:wieght=1", "component:attn=1",
                           "finding:nothing=1", "total=1,", "file:=1", "state=1%", "total=1,x=2"}) {
    const auto limits = read_budget(spec);
    ASSERT_FALSE(limits) << spec;
    EXPECT_EQ(limits.error().code, ErrorCode::kUsage) << spec;
  }
}

TEST(Budget, AllLimitsAreEvaluatedAndTheLineSaysWhat) {
  const Audit audit = small_audit();
  const auto results =
      evaluate(read_budget("total=150,header=20%,weight=120").value(), audit, nullptr).value();
  ASSERT_EQ(results.size(), 3U);
  EXPECT_EQ(results[0].over(), 10);
  EXPECT_EQ(results[1].most, 32U);
  EXPECT_EQ(results[1].over(), 8);
  EXPECT_TRUE(results[2].passed());
  EXPECT_EQ(failure_line(results[0]),
            "total: 160 B (160 bytes), 10 B (10 bytes) over the limit of 150");
}

TEST(Budget, FilesAreStrict) {
  const auto parse = [](const std::string& limit) {
    return parse_budget(R"({"ferry_budget": 1, "limits": [)" + limit + "]}", "b.json");
  };
  const auto good = parse(
      R"({"name": "download", "of": "total", "max": "900 MB"}, {"of": "padding", "max_percent": 0.5},
         {"of": "file:*.pte", "max": 4000000}, {"of": "state", "max_bytes": 5},
         {"of": "total", "max_growth": "1%"}, {"of": "total", "max_growth_bytes": 8})");
  ASSERT_TRUE(good) << good.error().message;
  ASSERT_EQ(good->size(), 6U);
  EXPECT_EQ((*good)[0].name, "download");
  EXPECT_EQ((*good)[0].bytes, 900'000'000U);
  EXPECT_EQ((*good)[1].percent, 0.5);
  EXPECT_TRUE((*good)[4].of_growth);
  for (const char* limit :
       {R"({"of": "total"})", R"({"of": "total", "max": 1, "max_bytes": 1})", R"({"max": 1})",
        R"({"of": "total", "max": -1})", R"({"of": "total", "max": 1.5})",
        R"({"of": "total", "maximum": 1})", R"({"of": "total", "max": "many"})",
        R"({"of": "tensors", "max": 1})", R"({"of": 1, "max": 1})", R"("total")", "",
        R"({"of": "state", "max": "1%"})", R"({"of": "total", "max": 1, "unit": "MB"})"}) {
    const auto limits = parse(limit);
    ASSERT_FALSE(limits) << limit;
    EXPECT_EQ(limits.error().code, ErrorCode::kBadInput) << limit;
    EXPECT_TRUE(limits.error().message.starts_with("b.json: ")) << limits.error().message;
  }
  for (const char* text : {"", "[]", R"({"limits": []})", R"({"ferry_budget": 2, "limits": [1]})",
                           R"({"ferry_budget": 1, "limits": [], "x": 1})"}) {
    EXPECT_FALSE(parse_budget(text, "b.json")) << text;
  }
}

TEST(Budget, GrowthIsMeasuredAgainstTheOldArtifact) {
  const auto limits = parse_budget(
      R"({"ferry_budget": 1, "limits": [{"of": "total", "max_growth": "1%"},
                                        {"of": "weight", "max_growth_bytes": 40}]})",
      "b.json");
  ASSERT_TRUE(limits);
  Audit larger = small_audit();
  larger.files[1].bytes += 40;
  larger.leaves[3] = tensor(1, 20, 80, "y", "cc");
  const Audit old = small_audit();
  const auto results = evaluate(*limits, larger, &old).value();
  EXPECT_EQ(results[0].size, 40);
  EXPECT_EQ(results[0].most, 1U);
  EXPECT_FALSE(results[0].passed());
  EXPECT_TRUE(results[1].passed());
  EXPECT_FALSE(evaluate(*limits, larger, nullptr));
}

// -- comparisons

TEST(Diff, EveryKindOfChange) {
  const Audit old = small_audit();
  Audit now = small_audit();
  now.name = "new";
  now.files = {{"a.safetensors", 140, "safetensors"}, {"b.safetensors", 60, "safetensors"}};
  now.leaves = {other(0, 0, 20, LeafKind::kHeader), tensor(0, 20, 40, "z", "bb"),
                tensor(0, 60, 80, "new", "dd"), other(1, 0, 20, LeafKind::kHeader),
                tensor(1, 20, 40, "x", "ee")};
  now.leaves[4].dtype = "bf16";
  const Diff diff = compare(old, now);
  ASSERT_EQ(diff.rows.size(), 3U);
  EXPECT_EQ(diff.rows[0].change, "new");
  EXPECT_EQ(diff.rows[0].delta(), 80);
  EXPECT_EQ(diff.rows[1].change, "changed");
  EXPECT_EQ(diff.rows[1].delta(), -40);
  EXPECT_EQ(diff.rows[1].note, "f32 -> bf16, [20] -> [10]");
  EXPECT_EQ(diff.rows[2].change, "renamed");
  EXPECT_EQ(diff.rows[2].old_name, "y");
  EXPECT_EQ(diff.equal_count, 1U);  // the headers count as one leaf
  EXPECT_EQ(diff.old_bytes, 160U);
  EXPECT_EQ(diff.new_bytes, 200U);
  EXPECT_TRUE(diff.by_content);
}

TEST(Diff, EqualSizesWithOtherDigestsDiffer) {
  Audit now = small_audit();
  now.leaves[1].sha256 = "zz";
  const Diff diff = compare(small_audit(), now);
  ASSERT_EQ(diff.rows.size(), 1U);
  EXPECT_EQ(diff.rows[0].note, "other contents");
  EXPECT_EQ(compare(small_audit(), small_audit()).rows.size(), 0U);
}

TEST(Diff, TensorsMoveBetweenFilesAndLoseTheirTies) {
  Audit now = small_audit();
  std::swap(now.leaves[1].file, now.leaves[3].file);
  now.leaves[1].tied.clear();
  now.leaves.push_back(tensor(0, 60, 80, "x_too", "aa"));
  const Diff diff = compare(small_audit(), now);
  EXPECT_EQ(diff.moved_count, 2U);
  EXPECT_EQ(diff.moved_bytes, 120U);
  ASSERT_EQ(diff.rows.size(), 3U);
  EXPECT_EQ(diff.rows[0].note, "was tied to x");
  EXPECT_EQ(diff.rows[1].change, "moved");
  EXPECT_EQ(diff.rows[1].note, "a.safetensors -> b.safetensors");
}

// -- findings

TEST(Findings, CopiesAreFoundByTheirDigests) {
  Audit audit{.name = "a", .type = "checkpoint"};
  audit.files = {{"f", 30'000, "safetensors"}};
  audit.leaves = {tensor(0, 0, 10'000, "e", "aa"), tensor(0, 10'000, 10'000, "h", "aa"),
                  tensor(0, 20'000, 10'000, "t", "bb")};
  auto findings = find_all(audit);
  ASSERT_EQ(findings.size(), 1U);
  EXPECT_EQ(findings[0].id, "duplicate");
  EXPECT_EQ(findings[0].bytes, 10'000U);
  audit.leaves[0].component = "embedding";
  audit.leaves[1].component = "head";
  findings = find_all(audit);
  ASSERT_EQ(findings.size(), 1U);
  EXPECT_EQ(findings[0].id, "untied-equal");
  for (const Finding& finding : findings) EXPECT_TRUE(is_finding(finding.id));
}

// -- the document

AuditReport report_of(Audit audit) {
  AuditReport report;
  report.audit = std::move(audit);
  return report;
}

TEST(Document, IsReadAsItWasWritten) {
  const std::string text = to_json(report_of(small_audit()), true);
  for (const std::string& whole : {text, R"({"schema": 1, "result": )" + text + "}"}) {
    const Result<Audit> read = read_document(whole, "audit.json");
    ASSERT_TRUE(read) << read.error().message;
    EXPECT_EQ(to_json(report_of(*read), true).substr(0, text.find("\"memory\"")),
              text.substr(0, text.find("\"memory\"")));
    EXPECT_EQ(compare(small_audit(), *read).rows.size(), 0U);
    EXPECT_EQ(read->memory->state_bytes(), 5U);
  }
  EXPECT_EQ(to_json(report_of(small_audit()), false).find("sha256"), std::string::npos);
}

TEST(Document, WhatDoesNotAddUpIsRefused) {
  const Json good = Json::parse(to_json(report_of(small_audit()), true));
  const auto refused = [&](const char* pointer, const Json& value) {
    Json bad = good;
    bad[Json::json_pointer(pointer)] = value;
    const Result<Audit> read = read_document(bad.dump(), "audit.json");
    EXPECT_FALSE(read) << pointer;
    return read ? std::string() : read.error().message;
  };
  EXPECT_EQ(refused("/items/1/bytes", 79),
            "audit.json: the items of 'a.safetensors' do not add up to its size");
  EXPECT_EQ(refused("/items/1/offset", 0),
            "audit.json: the items of 'a.safetensors' leave a gap or overlap");
  EXPECT_EQ(refused("/items/1/file", 2), "audit.json: items[1]: file is no index of files");
  refused("/items/1/bytes", -80);
  refused("/items/1/bytes", "80");
  refused("/items/1/kind", "tensor");
  refused("/items/1/shape", Json::array({1, -2}));
  refused("/items/1/shape", Json::array({uint64_t{1} << 63}));
  refused("/items/1/rule", 0);
  refused("/items/1", 7);
  refused("/files", 7);
  refused("/ferry_audit", 2);
  const uint64_t most = uint64_t{1} << 62;
  EXPECT_EQ(refused("/memory/activation_bytes", most),
            "audit.json: memory has more than 2^62 bytes");
  EXPECT_FALSE(read_document("[]", "x"));
  EXPECT_FALSE(read_document("{\"result\": 1}", "x"));
}

TEST(Document, SumsThatNoDifferenceCanHoldAreRefused) {
  Audit audit{.name = "big", .type = "folder"};
  for (uint32_t i = 0; i < 4; ++i) {  // 2^64 in all, which is 0 without a check
    audit.files.push_back({std::to_string(i), uint64_t{1} << 62, "other"});
    audit.leaves.push_back(
        {.file = i, .bytes = uint64_t{1} << 62, .kind = LeafKind::kOther, .name = "x"});
  }
  const Result<Audit> read = read_document(to_json(report_of(audit), true), "audit.json");
  ASSERT_FALSE(read);
  EXPECT_EQ(read.error().message, "audit.json: the files have more than 2^62 bytes");
  audit.files.resize(1);
  audit.leaves.resize(1);
  EXPECT_TRUE(read_document(to_json(report_of(audit), true), "audit.json"));
}

TEST(Document, HoldsFindingsForLimitsOfTheirGrowth) {
  Audit audit = small_audit();
  audit.findings = {{.id = "duplicate", .warning = true, .bytes = 7, .items = {"a", "b"}}};
  const Result<Audit> old = read_document(to_json(report_of(audit), true), "audit.json");
  ASSERT_TRUE(old) << old.error().message;
  const std::vector<Limit> limits = {{.name = "copies",
                                      .of = "finding:duplicate",
                                      .stated = "0 bytes",
                                      .of_growth = true,
                                      .bytes = 0,
                                      .percent = {}}};
  const auto same = evaluate(limits, audit, &*old);
  ASSERT_TRUE(same);
  EXPECT_EQ(same->front().size, 0);
  audit.findings[0].bytes = 9;
  const auto grown = evaluate(limits, audit, &*old);
  ASSERT_TRUE(grown);
  EXPECT_EQ(grown->front().over(), 2);
}

TEST(Document, OfTenThousandTensorsIsCompact) {
  Audit audit{.name = "big", .type = "bundle"};
  audit.files = {{"decoder-00001-of-00001.ptd", 10'000 * 4096, "data"}};
  for (uint64_t i = 0; i < 10'000; ++i) {
    const std::string name = "layers." + std::to_string(i / 100) + ".feed_forward.experts." +
                             std::to_string(i % 100) + ".w1.weight";
    audit.leaves.push_back(tensor(0, i * 4096, 4096, name, std::string(64, 'a')));
    audit.leaves.back().rule = "rename layers.{i}.feed_forward.experts.{e}.w1.weight";
    audit.leaves.back().layer = static_cast<int64_t>(i / 100);
  }
  EXPECT_LT(to_json(report_of(std::move(audit)), false).size(), 2'000'000U);
}

TEST(Document, NamesOfFilesAreNoMarkup) {
  Audit audit = small_audit();
  audit.name = "`|<b>\x1b[31m";
  audit.leaves[1].name = "a|b`c\nd";
  audit.leaves[3].name = "=1,\"2\"";
  AuditReport report = report_of(std::move(audit));
  report.diff = compare(small_audit(), report.audit);
  const std::string markdown = to_markdown(report);
  EXPECT_EQ(markdown.find('\x1b'), std::string::npos);
  EXPECT_NE(markdown.find("`a\\|b'c\\nd`"), std::string::npos) << markdown;
  EXPECT_EQ(to_text(report).find('\x1b'), std::string::npos);
  const std::string csv = to_csv(report);
  EXPECT_NE(csv.find("\"=1,\"\"2\"\"\""), std::string::npos) << csv;
}

TEST(Views, AreNestedAndAddUp) {
  const auto rows = view(small_audit(), {ViewKey::kFile, ViewKey::kKind}, ViewOrder::kBytes);
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_EQ(rows[0].key, "a.safetensors");
  ASSERT_EQ(rows[0].rows.size(), 2U);
  EXPECT_EQ(rows[0].rows[0].bytes, 80U);
  EXPECT_EQ(rows[0].rows[1].bytes, 20U);
  EXPECT_FALSE(view_keys("kind,kind"));
  EXPECT_FALSE(view_keys("kind,"));
  EXPECT_FALSE(view_keys("sort"));
}

TEST(Views, NamesWithNumbersAreInTheirOrder) {
  Audit audit{.name = "a", .type = "data"};
  audit.files = {{"f", 12, "data"}};
  for (const auto& [offset, layer] : {std::pair{0, 10}, std::pair{4, 9}, std::pair{8, 2}}) {
    audit.leaves.push_back(tensor(0, static_cast<uint64_t>(offset), 4, "t"));
    audit.leaves.back().layer = layer;
  }
  const auto rows = view(audit, {ViewKey::kLayer}, ViewOrder::kName);
  ASSERT_EQ(rows.size(), 3U);
  EXPECT_EQ(rows[0].key + rows[1].key + rows[2].key, "2910");
}

}  // namespace
}  // namespace ferry::audit::document_json_test
