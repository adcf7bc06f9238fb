// Budgets of bytes, through the program: the size of the bundle, what it keeps, and plan files.
#include "proof/weight_budget.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include "tests/cli/ferry_process.h"

namespace ferry::proof {
namespace {

using Json = nlohmann::json;
using Line = std::vector<std::string>;

class QuantizeBudget : public testing::Test {
 protected:
  QuantizeBudget() {
    // The first half of the text calibrates, the second half measures.
    const std::string text = read_bytes(fixture("trained/held_out.txt"));
    write_bytes(text_, text.substr(0, text.size() / 2));
    write_bytes(rest_, text.substr(text.size() / 2));
  }

  Outcome convert(const std::string& name, const Line& options) const {
    Line line = {"convert", sample_, "-o", dir_ / name, "--calibrate-weights", text_};
    line.insert(line.end(), options.begin(), options.end());
    return run_ferry(line);
  }
  // Returns the sum of the sizes of all files.
  uint64_t size_of(const std::string& name) const {
    uint64_t bytes = 0;
    for (const auto& [file, content] : files_in(dir_ / name)) bytes += content.size();
    return bytes;
  }
  double divergence(const std::string& name) const {
    const Outcome outcome = run_ferry({"verify", dir_ / name, "--perplexity", rest_, "--text",
                                       "--against", dir_ / "exact", "--json"});
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return outcome.json()["result"]["kl_mean"];
  }

  const TempDir dir_;
  const std::string text_ = dir_ / "text", rest_ = dir_ / "rest", plan_ = dir_ / "plan";
  const std::string sample_ = fixture("trained");
};

TEST_F(QuantizeBudget, IsNeverExceededAndIsWellSpent) {
  ASSERT_EQ(run_ferry({"convert", sample_, "-o", dir_ / "exact", "--dtype", "f32"}).code, 0);
  ASSERT_EQ(convert("four", {"--quantize", "8da4w", "--quantize-embedding", "8"}).code, 0);
  double before = divergence("four");
  for (const uint64_t budget : {1150000, 1300000}) {
    const std::string name = std::to_string(budget);
    const Outcome outcome = convert(name, {"--quantize-budget", name});
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_NE(outcome.err.find("predicted KL divergence"), std::string::npos) << outcome.err;
    EXPECT_LE(size_of(name), budget);
    EXPECT_GT(size_of(name), budget - 40000);  // a matrix of the sample
    EXPECT_NE(outcome.err.find(std::to_string(size_of(name)) + " bytes"), std::string::npos);
    const double now = divergence(name);
    EXPECT_LT(now, before);
    before = now;
  }
}

TEST_F(QuantizeBudget, APlanMakesTheSameBundleAgain) {
  ASSERT_EQ(convert("b", {"--quantize-budget", "1.2MB", "--quantize-plan", plan_}).code, 0);
  const std::string plan = read_bytes(plan_);
  EXPECT_NE(plan.find("=8da8w  # "), std::string::npos) << plan;
  const Line quantized = {"--quantize", "8da4w", "--quantize-embedding", "8"};
  Line options = quantized;
  options.insert(options.end(), {"--quantize-plan", plan_});
  ASSERT_EQ(convert("again", options).code, 0);
  EXPECT_EQ(files_in(dir_ / "b"), files_in(dir_ / "again"));
  // The bundle states its rules, so that a proof needs neither the budget nor the plan.
  const Outcome proof = run_ferry(
      {"verify", dir_ / "b", "--checkpoint", sample_, "--calibrate-weights", text_, "--quiet"});
  EXPECT_EQ(proof.code, 0) << proof.err;
  // An existing plan is not replaced, and that is known before the work.
  const Outcome refused = convert("no", {"--quantize-budget", "1.2MB", "--quantize-plan", plan_});
  EXPECT_NE(refused.code, 0);
  EXPECT_NE(refused.err.find("exists"), std::string::npos) << refused.err;
  EXPECT_EQ(read_bytes(plan_), plan);
}

TEST_F(QuantizeBudget, RulesAreObeyed) {
  const Outcome outcome =
      convert("b", {"--quantize-budget", "1.3MB", "--quantize-rule", "*.wo=8da4w-g64"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const Json manifest = Json::parse(read_bytes(dir_ / "b/manifest.json"));
  int matrices = 0;
  for (const Json& tensor : manifest["tensors"]) {
    if (!tensor["name"].get<std::string>().ends_with(".attention.wo.weight")) continue;
    EXPECT_NE(tensor.dump().find("quantize i4 group 64 "), std::string::npos) << tensor;
    ++matrices;
  }
  EXPECT_GT(matrices, 0);
}

TEST_F(QuantizeBudget, WhatIsGivenIsObeyedThoughItIsTheDefault) {
  const auto embedding = [&](const std::string& name, const Line& more) {
    Line options = {"--quantize-budget", "3MB"};
    options.insert(options.end(), more.begin(), more.end());
    const Outcome outcome = convert(name, options);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_LE(size_of(name), 3000000u);
    return Json::parse(read_bytes(dir_ / name + "/manifest.json"))["tensors"][0]["dtype"];
  };
  EXPECT_EQ(embedding("unsaid", {}), "i8");
  EXPECT_EQ(embedding("said", {"--quantize-embedding", "none"}), "bf16");
}

TEST_F(QuantizeBudget, ALargeBudgetLeavesTheMatricesAsTheyAre) {
  for (const char* budget : {"1GB", "900000TB", "64bpw"}) {
    const Outcome outcome = run_ferry(
        {"convert", sample_, "-n", "--quantize-budget", budget, "--calibrate-weights", text_});
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_NE(outcome.err.find("feed_forward.w2: none in layers 0-3"), std::string::npos)
        << outcome.err;
    EXPECT_EQ(outcome.err.find("8da8w in layers"), std::string::npos) << outcome.err;
  }
}

TEST_F(QuantizeBudget, ADryRunPrintsThePlan) {
  const Outcome outcome = run_ferry(
      {"convert", sample_, "-n", "--quantize-budget", "12bpw", "--calibrate-weights", text_});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_NE(outcome.err.find("8da8w in layers "), std::string::npos) << outcome.err;
  EXPECT_NE(outcome.out.find("dry run: nothing was written"), std::string::npos);
}

TEST_F(QuantizeBudget, WhatCannotBeIsRefused) {
  const auto refused = [&](const Line& options, const std::string& why) {
    const Outcome outcome = convert("no", options);
    EXPECT_EQ(outcome.code, 2) << outcome.err;
    EXPECT_NE(outcome.err.find(why), std::string::npos) << outcome.err;
    EXPECT_EQ(outcome.error_lines(), 1u) << outcome.err;
  };
  refused({"--quantize-budget", "10kB"}, "the smallest bundle has ");
  refused({"--quantize-budget", "much"}, "expected a size such as 105MB");
  refused({"--quantize-budget", "0bpw"}, "expected a size such as 105MB");
  refused({"--quantize-budget", "nanbpw"}, "expected a size such as 105MB");
  refused({"--quantize-budget", "1.2MB", "--quantize", "8da8w"}, "needs --quantize 8da4w");
  refused({"--quantize-budget", "1.2MB", "--quantize", "none"}, "needs --quantize 8da4w");
  refused({"--quantize-budget", "1.2MB", "--quantize-plan", plan_, "-n"}, "not with --dry-run");
  refused({"--quantize-budget", "1.2MB", "--attention", "sha", "--program", "static"},
          "single-head attention");
}

TEST_F(QuantizeBudget, PlansAreReadStrictly) {
  const auto read = [&](const std::string& text) {
    write_bytes(plan_, text);
    return convert("b", {"--quantize", "8da4w", "--quantize-plan", plan_, "-n"});
  };
  EXPECT_EQ(read("# nothing\n\n  layers.*.wo = none # no blanks\n").code, 3);
  const Outcome wrong = read("layers.0.feed_forward.w2=8da8w\nlayers.1.feed_forward.w2=9\n");
  EXPECT_EQ(wrong.code, 3) << wrong.err;
  EXPECT_NE(wrong.err.find("plan: line 2: '9'"), std::string::npos) << wrong.err;
  const Outcome absent = read("layers.0.feed_forward.w4=8da8w\n");
  EXPECT_EQ(absent.code, 2) << absent.err;
  EXPECT_NE(absent.err.find("matches no linear weight"), std::string::npos) << absent.err;
  const Outcome alone = run_ferry({"convert", sample_, "-n", "--quantize-plan", plan_});
  EXPECT_EQ(alone.code, 2) << alone.err;
  EXPECT_NE(alone.err.find("--quantize-plan: needs --quantize"), std::string::npos) << alone.err;
  EXPECT_EQ(read("\tlayers.0.feed_forward.w2=8da8w \r\n# end").code, 0);
}

}  // namespace
}  // namespace ferry::proof
