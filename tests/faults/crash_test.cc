// SIGKILL at every call that changes a disk, and at random times. Afterwards the name of a bundle
// belongs to a whole bundle or to nothing. A bundle that is being replaced exists until the new one
// is whole. The next run leaves nothing but the bundle. crash.sh tests all calls, the suite a few.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <random>
#include <tuple>

#include "tests/faults/fault.h"

namespace ferry::crash_test {
namespace {

namespace fs = std::filesystem;
using Args = std::vector<std::string>;

enum class Left { kNothing, kOldBundle, kStage, kOldBundleAndStage, kOtherStage };

struct Scenario {
  std::string name;
  Left left = Left::kNothing;  // state of the target when the run begins
  Args options = {};           // options of the run
};

const Scenario kScenarios[] = {
    {"convert"},
    {"overwrite", Left::kOldBundle, {"--overwrite"}},
    {"unsynced", Left::kOldBundle, {"--overwrite", "--no-sync"}},
    {"resume", Left::kNothing, {"--resume"}},
    {"resumed", Left::kStage, {"--resume"}},
    {"resumed_over_a_bundle", Left::kOldBundleAndStage, {"--resume", "--overwrite"}},
    {"stage_given_up", Left::kStage},
    {"stage_of_another_plan", Left::kOtherStage, {"--resume"}},
};

struct Counts {
  long points = 0, absent = 0, old_bundle = 0, new_bundle = 0, stages = 0;
};

class CrashTest : public testing::TestWithParam<Scenario> {
 protected:
  void SetUp() override {
    ASSERT_EQ(run_ferry_once(old_bundle(dir_ / "old")).code, 0);
    ASSERT_EQ(run_ferry_once(convert(dir_ / "new", {})).code, 0);
    ASSERT_EQ(run_ferry_once({"check", dir_ / "old"}).code, 0);
    ASSERT_EQ(run_ferry_once({"check", dir_ / "new"}).code, 0);
    old_ = files_in(dir_ / "old");
    new_ = files_in(dir_ / "new");
    ASSERT_TRUE(old_ != new_);
  }

  static Args old_bundle(const std::string& out) {
    return {"convert", fixture("llama3_tied"), "-o", out, "--threads", "1"};
  }
  // The bundle has several files, and some are large enough for space to be reserved.
  static Args convert(const std::string& out, const Args& options) {
    Args args = {"convert", fixture("llama3_tied"), "-o", out, "--dtype", "bf16", "--shards", "2"};
    args.insert(args.end(), options.begin(), options.end());
    return args;
  }
  Args run(bool one_thread) const {
    Args args = convert(target(), GetParam().options);
    if (one_thread) args.insert(args.end(), {"--threads", "1"});
    return args;
  }
  std::string target() const { return dir_ / "out/b"; }
  bool overwrites() const {
    return GetParam().left == Left::kOldBundle || GetParam().left == Left::kOldBundleAndStage;
  }

  void lay_out() {
    fs::remove_all(dir_ / "out");
    fs::create_directory(dir_ / "out");
    const Left left = GetParam().left;
    if (overwrites()) fs::copy(dir_ / "old", target(), fs::copy_options::recursive);
    if (left == Left::kStage || left == Left::kOldBundleAndStage) {
      leave_stage(convert(target(), {"--resume", "--overwrite", "--threads", "1"}));
    }
    if (left == Left::kOtherStage) {
      leave_stage(
          {"convert", fixture("llama3_tied"), "-o", target(), "--resume", "--threads", "1"});
    }
  }
  // Makes the first such stage by a run that is killed, and later ones as copies of it.
  void leave_stage(const Args& args) {
    if (stage_name_.empty()) {
      ASSERT_TRUE(run_and_kill(args, kStageCalls));
      const std::string stage = stage_of(target());
      ASSERT_FALSE(stage.empty());
      ASSERT_GT(read_bytes(stage + "/journal").size(), 400u);
      stage_name_ = fs::path(stage).filename();
      fs::rename(stage, dir_ / "stage");
    }
    fs::copy(dir_ / "stage", (dir_ / "out/") + stage_name_, fs::copy_options::recursive);
  }

  // Checks what a stopped run has left, and then the next run.
  void examine() {
    ++counts_.points;
    const bool there = fs::exists(target());
    const Files found = there ? files_in(target()) : Files();
    if (!there) {
      ++counts_.absent;
      ASSERT_FALSE(overwrites()) << "the previous bundle is lost";
    } else if (found == new_) {
      ++counts_.new_bundle;
    } else {
      ASSERT_TRUE(found == old_ && overwrites()) << "a bundle that is not whole";
      ++counts_.old_bundle;
    }
    if (!stage_of(target()).empty()) ++counts_.stages;
    const Outcome next = run_ferry_once(run(/*one_thread=*/false));
    if (there && !overwrites()) {
      ASSERT_EQ(next.code, 6) << next.err;  // the bundle exists already
    } else {
      ASSERT_EQ(next.code, 0) << next.err;
    }
    ASSERT_TRUE(files_in(target()) == new_);
    ASSERT_EQ(entries_of(dir_ / "out"), std::set<std::string>{"b"});
  }

  void print(const char* what) const {
    std::printf(
        "crash: %s, %s: %ld points: absent %ld, previous bundle %ld, new bundle %ld, corrupt "
        "0, lost 0; %ld stages; leaked after the next run 0\n",
        GetParam().name.c_str(), what, counts_.points, counts_.absent, counts_.old_bundle,
        counts_.new_bundle, counts_.stages);
  }

  static constexpr long kStageCalls = 45;  // some weights have been written by then

  TempDir dir_;
  Files old_, new_;
  std::string stage_name_;
  Counts counts_;
};

// Kills before each call, and in the middle of each write.
TEST_P(CrashTest, AtEveryCall) {
  for (const auto& [call, kind, few] :
       {std::tuple("change", "kill", 4), std::tuple("pwrite", "tear", 2)}) {
    lay_out();
    const long count = count_calls(call, run(/*one_thread=*/true));
    ASSERT_GT(count, 10);
    for (const long at : points(count, few)) {
      const std::string fault = std::string(call) + ' ' + kind + ' ' + std::to_string(at);
      SCOPED_TRACE(fault + " of " + std::to_string(count));
      lay_out();
      ASSERT_TRUE(run_and_die(run(/*one_thread=*/true), fault));
      ASSERT_NO_FATAL_FAILURE(examine());
    }
  }
  print("at calls");
}

TEST_P(CrashTest, AtAnyTime) {
  std::mt19937 random(1);
  lay_out();
  const auto start = std::chrono::steady_clock::now();
  ASSERT_EQ(run_ferry_once(run(/*one_thread=*/false)).code, 0);
  const std::chrono::duration<double, std::micro> time = std::chrono::steady_clock::now() - start;
  const long trials = std::min(tries(2), 30L);
  for (long i = 0; i < trials; ++i) {
    lay_out();
    RunningFerry ferry(run(/*one_thread=*/false));
    ::usleep(static_cast<useconds_t>(random() % static_cast<unsigned>(1.1 * time.count() + 1)));
    ferry.signal(SIGKILL);
    (void)ferry.wait();
    SCOPED_TRACE(i);
    ASSERT_NO_FATAL_FAILURE(examine());
  }
  print("at any time");
}

// The second and the third run are killed too.
TEST_P(CrashTest, AgainAndAgain) {
  const long trials = std::min(tries(1), 15L);
  std::mt19937 random(2);
  lay_out();
  const long count = count_calls("change", run(/*one_thread=*/true));
  for (long i = 0; i < trials; ++i) {
    lay_out();
    SCOPED_TRACE(i);
    for (int k = 0; k < 3; ++k) {
      (void)run_and_kill(run(/*one_thread=*/true),
                         1 + static_cast<long>(random() % static_cast<unsigned>(count)));
    }
    ASSERT_NO_FATAL_FAILURE(examine());
  }
  print("three times");
}

INSTANTIATE_TEST_SUITE_P(Scenarios, CrashTest, testing::ValuesIn(kScenarios),
                         [](const auto& scenario) { return scenario.param.name; });

// A file that `run` writes is whole or absent, and nothing is left beside it.
TEST(CrashedRun, FilesAreWholeOrAbsent) {
  const TempDir dir;
  ASSERT_EQ(run_ferry_once({"convert", fixture("llama3_tied"), "-o", dir / "b"}).code, 0);
  const auto args = [&dir](const std::string& out) {
    return Args{"run",          dir / "b",  "--tokens",      "1,2",      "--max-new", "2",
                "--stats-json", out + "/s", "--dump-logits", out + "/l", "--threads", "1"};
  };
  fs::create_directory(dir / "whole");
  const long count = count_calls("change", args(dir / "whole"));
  const std::string logits = read_bytes(dir / "whole/l");
  const std::string dir_of_run = dir / "out";
  long points_tried = 0;
  for (const long at : points(count, 8)) {
    SCOPED_TRACE("call " + std::to_string(at) + " of " + std::to_string(count));
    fs::remove_all(dir_of_run);
    fs::create_directory(dir_of_run);
    ASSERT_TRUE(run_and_die(args(dir_of_run), "change tear " + std::to_string(at)));
    ++points_tried;
    for (const std::string& name : entries_of(dir_of_run)) {
      ASSERT_TRUE(name == "s" || name == "l") << name;
      const std::string bytes = read_bytes(dir_of_run + "/" + name);
      ASSERT_TRUE(name == "l" ? bytes == logits : nlohmann::json::accept(bytes)) << name;
    }
  }
  std::printf("crash: files of run: %ld points: torn 0, leaked 0\n", points_tried);
}

// The process that makes this call first is killed: the batch itself or one of its conversions.
TEST(CrashedBatch, IsDoneByTheNextRuns) {
  const TempDir dir;
  ASSERT_EQ(run_ferry_once({"convert", fixture("llama3_tied"), "-o", dir / "whole"}).code, 0);
  const Files expected = files_in(dir / "whole");
  std::string plan;
  for (const char* name : {"a", "b"}) {
    const nlohmann::json task = {{"id", name},
                                 {"input", fixture("llama3_tied")},
                                 {"output", dir / ("out/" + std::string(name))}};
    plan += task.dump() + '\n';
  }
  const Args run = {"batch", "run", dir / "out/plan.jsonl", "--workers", "1", "--retries", "0"};
  long killed = 0, absent = 0, whole = 0;
  const std::vector<long> all = points(100, 3);
  for (const long at : all) {
    SCOPED_TRACE(at);
    fs::remove_all(dir / "out");
    fs::create_directory(dir / "out");
    write_bytes(dir / "out/plan.jsonl", plan);
    {
      const Fault fault("change kill " + std::to_string(at));
      killed += run_ferry_once(run).code != 0 ? 1 : 0;
    }
    for (const char* name : {"out/a", "out/b"}) {
      if (!fs::exists(dir / name)) {
        ++absent;
        continue;
      }
      ASSERT_TRUE(files_in(dir / name) == expected) << "a bundle that is not whole";
      ++whole;
    }
    // A conversion may outlive the batch that started it.
    Outcome next = run_ferry_once(run);
    for (int i = 0; i < 5 && next.code == 75; ++i) next = run_ferry_once(run);
    ASSERT_EQ(next.code, 0) << next.out << next.err;
    for (const char* name : {"out/a", "out/b"}) ASSERT_TRUE(files_in(dir / name) == expected);
    for (const std::string& name : entries_of(dir / "out")) {
      ASSERT_FALSE(name.starts_with(".a.") || name.starts_with(".b.")) << name;
    }
  }
  EXPECT_GT(killed, 0);
  std::printf(
      "crash: batch, at calls: %zu points: absent %ld, new bundle %ld, corrupt 0; leaked after "
      "the next run 0\n",
      all.size(), absent, whole);
}

}  // namespace
}  // namespace ferry::crash_test
