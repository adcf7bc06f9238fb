// The document of an audit, read and written, and its tables.
#include "audit/document.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "tests/audit/small_audit.h"

namespace ferry::audit::document_test {
namespace {

using Json = nlohmann::json;

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
    audit.leaves.push_back(tensor_leaf(0, i * 4096, 4096, name, std::string(64, 'a')));
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

}  // namespace
}  // namespace ferry::audit::document_test
