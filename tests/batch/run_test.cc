// Runs on one machine: finished tasks are not done again, and a failing task does not stop the
// others.
#include "batch/run.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "batch/host.h"
#include "batch/judge.h"
#include "batch/state.h"
#include "tests/batch/batch_testing.h"

namespace ferry::batch::run_test {
namespace {

namespace fs = std::filesystem;
using Kinds = std::vector<std::string>;

TEST(BatchRun, OneBadInputStopsNoOtherAndIsNotTriedAgain) {
  const TempDir dir;
  make_checkpoint(dir, "a", 1);
  make_bad_checkpoint(dir, "bad");
  make_checkpoint(dir, "c", 2);
  Batch batch(dir, {"a", "bad", "c"});
  batch.options.workers = 2;
  const RunEnd first = batch.run();
  EXPECT_EQ(kinds(first), (Kinds{"done", "failed", "done"}));
  EXPECT_EQ(first.exit, 3);
  const AttemptResult& bad = first.tasks[1].result;
  EXPECT_EQ(bad.reason, Class::kInput);
  EXPECT_NE(bad.message.find("bad/model.safetensors"), std::string::npos) << bad.message;
  EXPECT_EQ(first.tasks[0].result.sha256, digest_of_convert(dir, dir / "a"));
  EXPECT_GT(first.tasks[0].result.max_rss_bytes, 1u << 20);
  const RunEnd second = batch.run();
  EXPECT_EQ(kinds(second), (Kinds{"up_to_date", "failed_before", "up_to_date"}));
  EXPECT_EQ(second.exit, 3);
  EXPECT_EQ(batch.attempts("bad"), 1u);
  batch.options.evaluate.again = true;
  EXPECT_EQ(kinds(batch.run()), (Kinds{"up_to_date", "failed", "up_to_date"}));
  // A mended checkpoint is another input.
  fs::remove_all(dir / "bad");
  make_checkpoint(dir, "bad", 3);
  batch.options.evaluate.again = false;
  const RunEnd mended = batch.run();
  EXPECT_EQ(kinds(mended), (Kinds{"up_to_date", "done", "up_to_date"}));
  EXPECT_EQ(mended.exit, 0);
}

TEST(BatchRun, WhatChangedIsDoneAgainButNotOverABundleUnlessForced) {
  const TempDir dir;
  make_checkpoint(dir, "a", 1);
  Batch batch(dir, {"a"});
  const std::string first = batch.run().tasks[0].result.sha256;
  fs::remove_all(dir / "a");
  make_checkpoint(dir, "a", 2);  // names and sizes stay as they were
  const RunEnd refused = batch.run();
  ASSERT_EQ(kinds(refused), (Kinds{"failed"}));
  EXPECT_EQ(refused.tasks[0].result.reason, Class::kExists);
  EXPECT_EQ(refused.exit, 6);
  EXPECT_NE(refused.tasks[0].result.message.find("another fingerprint"), std::string::npos);
  batch.options.evaluate.force = true;
  const RunEnd forced = batch.run();
  EXPECT_EQ(kinds(forced), (Kinds{"done"}));
  EXPECT_NE(forced.tasks[0].result.sha256, first);
  EXPECT_EQ(kinds(batch.run()), (Kinds{"up_to_date"}));
  // Other options give another fingerprint.
  batch.plan.tasks[0].args = {"--dtype", "bf16"};
  EXPECT_EQ(kinds(batch.run()), (Kinds{"done"}));
  // A bundle that was removed or changed is not up to date.
  fs::remove_all(batch.plan.tasks[0].output);
  EXPECT_EQ(kinds(batch.run()), (Kinds{"done"}));
  write_bytes(batch.plan.tasks[0].output + "/manifest.json", "{}");
  EXPECT_EQ(kinds(batch.run()), (Kinds{"done"}));
}

TEST(BatchRun, ABundleOfSomebodyElseIsLeftAlone) {
  const TempDir dir;
  make_checkpoint(dir, "a", 1);
  Batch batch(dir, {"a"});
  fs::create_directories(dir / "out/a");
  write_bytes(dir / "out/a/manifest.json", "mine");
  EXPECT_EQ(batch.run().tasks[0].result.reason, Class::kExists);
  EXPECT_EQ(read_bytes(dir / "out/a/manifest.json"), "mine");
}

TEST(BatchRun, TransientFailuresAreTriedAgainAndNoOthers) {
  const TempDir dir;
  make_checkpoint(dir, "a", 1);
  Batch batch(dir, {"a"});
  batch.options.program = make_program(dir, "ferry", R"(
echo x >> "$DIR/calls"
if [ $(wc -l < "$DIR/calls") -lt 4 ]; then
  echo '{"ok":false,"exit":5,"error":{"code":"io","message":"o/w.ptd: cannot write: Input/output error","details":[]}}'
  exit 5
fi
exec "$FERRY" "$@")");
  batch.options.retries = 1;
  const RunEnd first = batch.run();
  EXPECT_EQ(kinds(first), (Kinds{"failed"}));
  EXPECT_EQ(first.exit, kTransientExit);
  EXPECT_TRUE(first.tasks[0].result.transient);
  EXPECT_EQ(batch.attempts("a"), 2u);
  const RunEnd second = batch.run();
  EXPECT_EQ(kinds(second), (Kinds{"done"}));
  EXPECT_EQ(batch.attempts("a"), 4u);
  // Other input and output errors may be permanent: the task is not retried in this run, but the
  // next run tries it.
  fs::remove_all(batch.plan.tasks[0].output);
  batch.options.program =
      make_program(dir, "other", "echo \"ferry: error: x: Permission denied\" >&2; exit 5");
  const RunEnd denied = batch.run();
  EXPECT_EQ(denied.exit, 5);
  EXPECT_EQ(denied.tasks[0].result.message, "x: Permission denied");
  EXPECT_EQ(batch.attempts("a"), 5u);
  batch.options.program = FERRY_BINARY;
  EXPECT_EQ(kinds(batch.run()), (Kinds{"done"}));
}

// A full disk is no fault of the task that finds it: the run ends, and the next one goes on.
TEST(BatchRun, AFullDiskEndsTheRun) {
  const TempDir dir;
  for (const char* name : {"a", "b", "c"}) make_checkpoint(dir, name, 1);
  Batch batch(dir, {"a", "b", "c"});
  batch.options.program = make_program(dir, "ferry", R"(
echo x >> "$DIR/calls"
if [ $(wc -l < "$DIR/calls") = 2 ]; then
  echo '{"ok":false,"exit":5,"error":{"code":"io","message":"o/w.ptd: cannot write: No space left on device","details":[]}}'
  exit 5
fi
exec "$FERRY" "$@")");
  const RunEnd full = batch.run();
  EXPECT_EQ(full.exit, kFullDiskExit);
  EXPECT_EQ(full.full_disk, "o/w.ptd: cannot write: No space left on device");
  EXPECT_EQ(kinds(full), (Kinds{"done", "failed", "not_begun"}));
  const RunEnd after = batch.run();
  EXPECT_EQ(after.exit, 0);
  EXPECT_EQ(after.full_disk, "");
  EXPECT_EQ(kinds(after), (Kinds{"up_to_date", "done", "done"}));
  EXPECT_EQ(batch.attempts("a"), 1u);
}

TEST(BatchRun, ATaskThatIsKilledStopsNoOtherAndIsDoneByTheNextRun) {
  const TempDir dir;
  for (const char* name : {"a", "b", "c"}) make_checkpoint(dir, name, name[0]);
  Batch batch(dir, {"a", "b", "c"});
  batch.options.program = make_program(dir, "ferry", R"(
case "$2" in */b) kill -9 $$ ;; esac
exec "$FERRY" "$@")");
  const RunEnd first = batch.run();
  EXPECT_EQ(kinds(first), (Kinds{"done", "failed", "done"}));
  EXPECT_EQ(first.tasks[1].result.reason, Class::kCrash);
  EXPECT_EQ(first.exit, 137);
  batch.options.program = FERRY_BINARY;
  EXPECT_EQ(kinds(batch.run()), (Kinds{"up_to_date", "done", "up_to_date"}));
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(bundle_digest(batch.plan.tasks[i].output),
              digest_of_convert(dir, batch.plan.tasks[i].input));
  }
}

TEST(BatchRun, TwoRunsWithLeasesConvertNothingTwice) {
  const TempDir dir;
  Kinds names;
  for (int i = 0; i < 12; ++i) {
    names.push_back("c" + std::to_string(i));
    make_checkpoint(dir, names.back(), i);
  }
  Batch one(dir, names), two(dir, names);
  one.options.workers = two.options.workers = 2;
  RunEnd other;
  std::thread thread([&] { other = two.run(); });
  const RunEnd end = one.run();
  thread.join();
  EXPECT_EQ(end.exit, 0);
  EXPECT_EQ(other.exit, 0);
  size_t done = 0;
  for (size_t i = 0; i < names.size(); ++i) {
    EXPECT_EQ(one.attempts(names[i]), 1u) << names[i];
    for (const RunEnd* run : {&std::as_const(end), &std::as_const(other)}) {
      done += run->tasks[i].kind == TaskEnd::Kind::kAttempted ? 1u : 0u;
    }
  }
  EXPECT_EQ(done, names.size());
  EXPECT_TRUE(fs::is_empty(dir / "state/claims"));
}

TEST(BatchRun, TasksOfOthersAreLeftOrTakenOver) {
  const TempDir dir;
  make_checkpoint(dir, "a", 1);
  Batch batch(dir, {"a"});
  ASSERT_TRUE(batch.state.prepare());
  const Started owner{.fingerprint = "",
                      .host = "elsewhere",
                      .boot = "x",
                      .start = "x",
                      .process = 1,
                      .process_start = 1,
                      .may_replace = false};
  write_bytes(dir / "state/claims/a", to_json(owner));
  batch.options.wait = false;
  const RunEnd left = batch.run();
  EXPECT_EQ(kinds(left), (Kinds{"elsewhere"}));
  EXPECT_EQ(left.exit, kTransientExit);
  batch.options.wait = true;
  batch.options.lease = std::chrono::seconds(1);
  // The claim is taken over after a second without a sign of life.
  EXPECT_EQ(kinds(batch.run()), (Kinds{"done"}));
}

TEST(BatchRun, WhatAKilledRunHasConvertedIsOnlyVerified) {
  const TempDir dir;
  make_checkpoint(dir, "a", 1);
  Batch batch(dir, {"a"});
  batch.plan.tasks[0].verify.check = true;
  const RunEnd first = batch.run();
  ASSERT_EQ(kinds(first), (Kinds{"done"}));
  EXPECT_EQ(first.tasks[0].result.steps.size(), 2u);
  // This is the state after a kill in the middle of `check`.
  fs::remove(dir / "state/done/a.json");
  fs::remove(batch.state.attempt_path("a", 1, "result.json"));
  const RunEnd second = batch.run();
  ASSERT_EQ(kinds(second), (Kinds{"done"}));
  ASSERT_EQ(second.tasks[0].result.steps.size(), 1u);
  EXPECT_EQ(second.tasks[0].result.steps[0].name, "check");
  EXPECT_EQ(second.tasks[0].result.sha256, first.tasks[0].result.sha256);
  // This is the state after a kill between the conversion and its record: the bundle is made again.
  fs::remove(dir / "state/done/a.json");
  fs::remove_all(dir / "state/attempts/a/1");
  fs::remove(batch.state.attempt_path("a", 2, "result.json"));
  fs::remove(batch.state.attempt_path("a", 2, "converted"));
  std::string started = read_bytes(batch.state.attempt_path("a", 2, "started.json"));
  started.replace(started.find("\"may_replace\":false"), 19, "\"may_replace\":true");
  write_bytes(batch.state.attempt_path("a", 2, "started.json"), started);
  const RunEnd third = batch.run();
  ASSERT_EQ(kinds(third), (Kinds{"done"}));
  EXPECT_EQ(third.tasks[0].result.steps.size(), 2u);
}

TEST(BatchRun, ExpectationsAndProofsAreKept) {
  const TempDir dir;
  for (const char* name : {"a", "b", "c", "d"}) make_checkpoint(dir, name, name[0]);
  Batch batch(dir, {"a", "b", "c", "d"});
  batch.plan.tasks[0].expect.sha256 = digest_of_convert(dir, dir / "a");
  batch.plan.tasks[1].expect.sha256 = std::string(64, '0');
  batch.plan.tasks[2].expect.max_bytes = 1000;
  batch.plan.tasks[3].verify.checkpoint = true;
  const RunEnd end = batch.run();
  EXPECT_EQ(kinds(end), (Kinds{"done", "failed", "failed", "done"}));
  EXPECT_EQ(end.exit, 1);
  EXPECT_EQ(end.tasks[1].result.reason, Class::kExpectation);
  EXPECT_NE(end.tasks[2].result.message.find("more than 1000"), std::string::npos);
  ASSERT_TRUE(end.tasks[3].result.parity);
  EXPECT_TRUE(end.tasks[3].result.parity->parity);
  EXPECT_TRUE(end.tasks[3].result.parity->max_abs);
}

TEST(BatchRun, FingerprintsOfAllBytesDoNotDependOnTimes) {
  const TempDir dir;
  make_checkpoint(dir, "a", 1);
  // Files of this size are read as a whole only with Thoroughness::kBytes.
  write_bytes(dir / "a/notes.bin", std::string(3 << 20, 'x'));
  Batch batch(dir, {"a"});
  batch.options.evaluate.thoroughness = Thoroughness::kBytes;
  ASSERT_EQ(kinds(batch.run()), (Kinds{"done"}));
  const auto later = fs::last_write_time(dir / "a/notes.bin") + std::chrono::hours(1);
  fs::last_write_time(dir / "a/notes.bin", later);
  EXPECT_EQ(kinds(batch.run()), (Kinds{"up_to_date"}));
  std::string bytes = read_bytes(dir / "a/notes.bin");
  bytes[1 << 20] = 'y';  // neither at the beginning nor at the end
  write_bytes(dir / "a/notes.bin", bytes);
  fs::last_write_time(dir / "a/notes.bin", later);
  EXPECT_EQ(kinds(batch.run()), (Kinds{"failed"}));
}

}  // namespace
}  // namespace ferry::batch::run_test
