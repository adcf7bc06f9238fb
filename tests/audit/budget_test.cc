#include "audit/budget.h"

#include <gtest/gtest.h>

#include <string>

#include "tests/audit/small_audit.h"

namespace ferry::audit::budget_test {
namespace {

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
  larger.leaves[3] = tensor_leaf(1, 20, 80, "y", "cc");
  const Audit old = small_audit();
  const auto results = evaluate(*limits, larger, &old).value();
  EXPECT_EQ(results[0].size, 40);
  EXPECT_EQ(results[0].most, 1U);
  EXPECT_FALSE(results[0].passed());
  EXPECT_TRUE(results[1].passed());
  EXPECT_FALSE(evaluate(*limits, larger, nullptr));
}

}  // namespace
}  // namespace ferry::audit::budget_test
