// Status and reports, compared with the records of a real run.
#include "batch/report.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "batch/host.h"
#include "batch/state.h"
#include "batch/status.h"
#include "tests/batch/batch_testing.h"

namespace ferry::batch::report_test {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// A batch with a task in every state except "running".
struct Mixed {
  TempDir dir;
  Batch batch{dir, {"done", "bad1", "changed", "cut", "waiting", "bad2"}};

  Mixed() {
    for (const char* name : {"done", "changed", "cut", "waiting"}) make_checkpoint(dir, name, 1);
    make_bad_checkpoint(dir, "bad1");
    make_bad_checkpoint(dir, "bad2");
    batch.run({0, 1, 2, 3, 5});
    fs::remove_all(dir / "changed");
    make_checkpoint(dir, "changed", 2);
    fs::remove(dir / "state/done/cut.json");
    fs::remove(batch.state.attempt_path("cut", 1, "result.json"));
    // The process that made the attempt does not exist any more.
    set_process("cut", this_process().host, this_process().boot, 1);
  }
  void set_process(const std::string& id, const std::string& host, const std::string& boot,
                   uint64_t start) {
    const Started started{.fingerprint = "x",
                          .host = host,
                          .boot = boot,
                          .start = "x",
                          .process = this_process().id,
                          .process_start = start,
                          .may_replace = true};
    write_bytes(batch.state.attempt_path(id, 1, "started.json"), to_json(started));
  }
  PlanStatus status(std::chrono::seconds lease = 60s) {
    Result<PlanStatus> all = status_of(batch.plan, batch.state, lease);
    EXPECT_TRUE(all) << all.error().message;
    return all ? *std::move(all) : PlanStatus();
  }
};

TEST(BatchStatus, EveryTaskHasItsState) {
  Mixed mixed;
  const PlanStatus status = mixed.status();
  const std::vector<TaskState> expected = {TaskState::kDone,    TaskState::kFailed,
                                           TaskState::kChanged, TaskState::kInterrupted,
                                           TaskState::kWaiting, TaskState::kFailed};
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(status.tasks[i].state, expected[i]) << mixed.batch.plan.tasks[i].id;
  }
  EXPECT_FALSE(status.complete());
  EXPECT_EQ(array_spec(status, TaskState::kFailed, 1), "1,5");
  EXPECT_EQ(array_spec(status, std::nullopt, 1), "1-5");
  EXPECT_EQ(array_spec(status, TaskState::kFailed, 2), "0,2");
  EXPECT_EQ(array_spec(status, TaskState::kRunning, 1), "");
}

TEST(BatchStatus, AnAttemptRunsWhileItsProcessLivesOrIsHeardOf) {
  Mixed mixed;
  const Process& us = this_process();
  mixed.set_process("cut", us.host, us.boot, us.start);
  EXPECT_EQ(mixed.status().tasks[3].state, TaskState::kRunning);
  mixed.set_process("cut", "elsewhere", us.boot, us.start);
  EXPECT_EQ(mixed.status().tasks[3].state, TaskState::kRunning);
  const std::string started = mixed.batch.state.attempt_path("cut", 1, "started.json");
  fs::last_write_time(started, fs::file_time_type::clock::now() - 61s);
  EXPECT_EQ(mixed.status().tasks[3].state, TaskState::kInterrupted);
}

TEST(BatchStatus, ADamagedRecordHidesNoOtherTask) {
  Mixed mixed;
  write_bytes(mixed.dir / "state/done/done.json", "{\"schema\":1}");
  const PlanStatus status = mixed.status();
  EXPECT_EQ(status.tasks[0].state, TaskState::kFailed);
  EXPECT_TRUE(has(status.tasks[0].problem, "state/done/done.json")) << status.tasks[0].problem;
  EXPECT_EQ(status.tasks[4].state, TaskState::kWaiting);
  const std::string text = status_text(mixed.batch.plan, status);
  EXPECT_TRUE(has(text, "done.json: '")) << text;  // the message names a member, in quotes
  write_bytes(mixed.dir / "state/done/done.json", "{\"schema\":2}");
  EXPECT_TRUE(has(mixed.status().tasks[0].problem, "done.json: 'schema' is not 1"));
}

TEST(BatchReport, SumsAndGroups) {
  Mixed mixed;
  Result<Report> made = make_report(mixed.batch.plan, mixed.batch.state, 60s);
  ASSERT_TRUE(made) << made.error().message;
  EXPECT_EQ(made->attempts, 5u);
  ASSERT_EQ(made->failures.size(), 1u);  // the two messages differ in the path alone
  EXPECT_EQ(made->failures[0].tasks, (std::vector<std::string>{"bad1", "bad2"}));
  EXPECT_TRUE(made->failures[0].message.starts_with("INPUT/")) << made->failures[0].message;
  uint64_t bytes = 0;
  for (const auto& file : fs::directory_iterator(mixed.dir / "out/done")) bytes += file.file_size();
  EXPECT_EQ(made->output_bytes, bytes);
  EXPECT_EQ(made->hosts.at(this_process().host).attempts, 4u);
  const std::string text = report_text(*made), markdown = report_markdown(*made);
  EXPECT_TRUE(has(text, "6 tasks: 1 done, 1 changed, 2 failed, 1 interrupted, 1 waiting")) << text;
  EXPECT_TRUE(has(text, "2 x input (exit 3): INPUT/")) << text;
  EXPECT_TRUE(has(markdown, "| 1 | bad1 | failed | 1 |")) << markdown;
  EXPECT_TRUE(has(report_json(*made),
                  R"("counts":{"done":1,"changed":1,"running":0,"failed":2,"interrupted":1,)"))
      << report_json(*made);
}

TEST(BatchReport, NamesDoNotBecomeMarkup) {
  const TempDir dir;
  const std::string name = "a|b <img>";
  make_checkpoint(dir, name, 1);
  Batch batch(dir, {name});
  batch.plan.tasks[0].id = "a";
  batch.plan.tasks[0].args = {"--config", dir / "no|<b>"};
  batch.run();
  const Result<Report> made = make_report(batch.plan, batch.state, 60s);
  ASSERT_TRUE(made) << made.error().message;
  const std::string markdown = report_markdown(*made);
  EXPECT_TRUE(has(markdown, "no\\|\\<b\\>")) << markdown;
}

}  // namespace
}  // namespace ferry::batch::report_test
