// ferry batch as a program: its documents, its exit codes, and the state after signals and kills.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <filesystem>
#include <thread>

#include "tests/cli/ferry_process.h"

namespace ferry::verb_batch_test {
namespace {

namespace fs = std::filesystem;
using Line = std::vector<std::string>;
using namespace std::chrono_literals;

// Makes checkpoints in DIR/in, and their plan. The first `slow` conversions calibrate, for about a
// second.
std::string make_batch(const TempDir& dir, int count, int slow) {
  std::string prompts;
  for (int i = 0; i < 1500; ++i) prompts += "1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16\n";
  write_bytes(dir / "prompts", prompts);
  std::string plan;
  for (int i = 0; i < count; ++i) {
    const std::string in = dir / fmt::format("in/c{}", i);
    fs::create_directories(in);
    fs::copy_file(fixture("llama3_tied/config.json"), in + "/config.json");
    fs::copy_file(fixture("llama3_tied/model.safetensors"), in + "/model.safetensors");
    const std::string args =
        i >= slow ? ""
                  : fmt::format(R"(,"args":["--program","static","--kv-dtype","u8","--calibrate",)"
                                R"("{}"])",
                                dir / "prompts");
    plan += fmt::format(R"({{"id":"c{}","input":"{}","output":"{}"{}}})"
                        "\n",
                        i, in, dir / fmt::format("out/c{}", i), args);
  }
  write_bytes(dir / "plan.jsonl", plan);
  return dir / "plan.jsonl";
}

bool appears(const std::string& path) {
  for (int i = 0; i < 6000; ++i) {
    if (fs::exists(path)) return true;
    std::this_thread::sleep_for(5ms);
  }
  return false;
}

// Counts the files beside bundles.
size_t leftovers(const TempDir& dir) {
  size_t count = 0;
  for (const auto& entry : fs::directory_iterator(dir / "out")) {
    count += entry.path().filename().string().starts_with(".") ? 1u : 0u;
  }
  return count;
}

TEST(Batch, FromPlanToReport) {
  const TempDir dir;
  make_batch(dir, 3, 0);
  const Outcome planned = run_ferry({"batch", "plan", dir / "in", "--out-dir", dir / "out",
                                     "--args", "--dtype bf16", "--verify", "check", "--quiet"});
  ASSERT_EQ(planned.code, 0) << planned.err;
  const std::string plan = dir / "plan2.jsonl";
  write_bytes(plan, planned.out);
  EXPECT_EQ(run_ferry({"batch", "report", plan}).code, 1);
  const Outcome ran = run_ferry({"batch", "run", plan, "--workers", "2", "--json"});
  ASSERT_EQ(ran.code, 0) << ran.err;
  EXPECT_EQ(ran.json().at("verb"), "batch run");
  EXPECT_EQ(ran.json().at("result").at("counts").at("done"), 3);
  const Outcome again = run_ferry({"batch", "run", plan});
  EXPECT_EQ(again.out, "3 tasks: 3 up to date\n");
  const Outcome report = run_ferry({"batch", "report", plan, "-o", dir / "report.html", "--json"});
  EXPECT_EQ(report.code, 0);
  EXPECT_TRUE(report.json().at("result").at("complete"));
  EXPECT_NE(read_bytes(dir / "report.html").find("<html"), std::string::npos);
  const Outcome spec = run_ferry({"batch", "status", plan, "--array-spec", "unfinished"});
  EXPECT_EQ(spec.code, 1);
  EXPECT_EQ(spec.out, "");
}

TEST(Batch, TasksOfArraysByNumberAndByVariable) {
  const TempDir dir;
  const std::string plan = make_batch(dir, 5, 0);
  EXPECT_EQ(run_ferry({"batch", "run", plan, "--task", "2", "--tasks-per-index", "2"}).code, 0);
  EXPECT_EQ(
      run_program(FERRY_BINARY, {"batch", "run", plan, "--quiet"}, {"SLURM_ARRAY_TASK_ID=0"}).out,
      "1 tasks: 1 done\n");
  EXPECT_EQ(run_program(FERRY_BINARY, {"batch", "run", plan, "--tasks-per-index", "3"},
                        {"JOB_COMPLETION_INDEX=0"})
                .code,
            0);
  EXPECT_EQ(run_ferry({"batch", "status", plan, "--array-spec", "waiting"}).out, "3\n");
  EXPECT_EQ(run_ferry({"batch", "run", plan, "--task", "5"}).code, 2);
  EXPECT_EQ(run_program(FERRY_BINARY, {"batch", "run", plan}, {"SLURM_ARRAY_TASK_ID=x"}).code, 2);
}

TEST(Batch, SignalsEndWith75AndTheNextRunGoesOn) {
  for (const int signal : {SIGTERM, SIGINT, SIGUSR1}) {
    SCOPED_TRACE(signal);
    const TempDir dir;
    const std::string plan = make_batch(dir, 3, 1);
    RunningFerry ferry({"batch", "run", plan, "--quiet"});
    ASSERT_TRUE(appears(plan + ".state/attempts/c0/1/convert.json"));
    ferry.signal(signal);
    const auto asked = std::chrono::steady_clock::now();
    const Outcome stopped = ferry.wait();
    EXPECT_LT(std::chrono::steady_clock::now() - asked, 5s);
    EXPECT_EQ(stopped.code, 75) << stopped.err;
    // A fast machine may have finished the conversion by then.
    EXPECT_TRUE(stopped.out == "3 tasks: 1 interrupted, 2 not begun\n" ||
                stopped.out == "3 tasks: 1 done, 2 not begun\n")
        << stopped.out;
    EXPECT_TRUE(fs::is_empty(plan + ".state/claims"));
    EXPECT_EQ(run_ferry_once({"batch", "run", plan, "--workers", "3"}).code, 0);
    EXPECT_EQ(leftovers(dir), 0u);
  }
}

TEST(Batch, AfterAKillOfTheRunTheNextOneDoesTheRest) {
  const TempDir dir;
  const std::string plan = make_batch(dir, 4, 1);
  {
    RunningFerry ferry({"batch", "run", plan, "--workers", "2", "--quiet"});
    ASSERT_TRUE(appears(plan + ".state/done/c3.json"));  // while c0 is being converted
    ferry.signal(SIGKILL);
    EXPECT_EQ(ferry.wait().code, -1);
  }
  const Outcome status = run_ferry({"batch", "status", plan, "--json"});
  EXPECT_EQ(status.json().at("result").at("counts").at("interrupted"), 1) << status.out;
  const Outcome rest = run_ferry_once({"batch", "run", plan, "--quiet"});
  EXPECT_EQ(rest.out, "4 tasks: 1 done, 3 up to date\n") << rest.err;
  EXPECT_EQ(leftovers(dir), 0u);
  EXPECT_TRUE(fs::is_empty(plan + ".state/claims"));
}

TEST(Batch, QuotesOfAMessageStayAndControlCharactersDoNot) {
  const TempDir dir;
  fs::create_directories(dir / "in");
  const std::string plan =
      fmt::format(R"({{"id":"a","input":"{}","output":"{}","args":["--bogus"]}})"
                  "\n"
                  R"({{"id":"b","input":"none\u001b[1m","output":"{}"}})"
                  "\n",
                  dir / "in", dir / "a", dir / "b");
  write_bytes(dir / "p", plan);
  const std::string err = run_ferry_once({"batch", "run", dir / "p"}).err;
  EXPECT_NE(err.find("a: failed: not expected: '--bogus'"), std::string::npos) << err;
  EXPECT_NE(err.find("b: failed: none"), std::string::npos) << err;
  EXPECT_EQ(err.find('\x1b'), std::string::npos) << err;
}

TEST(Batch, PlansAndOptionsThatMakeNoSense) {
  const TempDir dir;
  write_bytes(dir / "p", "{\"id\":\"a\"}\n");
  EXPECT_EQ(run_ferry({"batch", "run", dir / "p"}).code, 3);
  EXPECT_EQ(run_ferry({"batch", "run", dir / "none"}).code, 5);
  const std::string plan = make_batch(dir, 1, 0);
  for (const Line& line : std::vector<Line>{
           {"batch"},
           {"batch", "rnu", plan},
           {"batch", "run", plan, "--workers", "0"},
           {"batch", "run", plan, "--lease-seconds", "0"},
           {"batch", "plan", dir / "in"},
           {"batch", "status", plan, "--array-spec", "x"},
           {"batch", "run", plan, "--tasks-per-index", "2"},
           {"batch", "plan", dir / "in", "--out-dir", dir / "o", "--args", "-o x"},
           {"batch", "plan", dir / "in", "--out-dir", dir / "o", "--args", "--dtype f13"},
           {"batch", "plan", dir / "in", "--out-dir", dir / "o", "--args", "--frobnicate"},
           {"batch", "report", plan, "-o", dir / "r.pdf"},
           {"batch", "slurm", plan, "--report", dir / "r.pdf"},
           {"batch", "k8s", plan, "--image", "i"}}) {
    EXPECT_EQ(run_ferry(line).code, 2) << testing::PrintToString(line);
  }
}

}  // namespace
}  // namespace ferry::verb_batch_test
