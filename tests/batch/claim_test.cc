// Leases: a task has one owner at a time, and dead or silent owners lose it.
#include "batch/claim.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <thread>
#include <vector>

#include "batch/host.h"
#include "batch/result.h"
#include "batch/state.h"
#include "tests/batch/batch_testing.h"

namespace ferry::batch::claim_test {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

std::optional<Claim> take(const TempDir& dir, const std::string& id,
                          std::chrono::seconds lease = 60s) {
  Result<std::optional<Claim>> claim = Claim::take(dir / "", id, lease);
  EXPECT_TRUE(claim) << claim.error().message;
  return claim ? std::move(*claim) : std::nullopt;
}

size_t files_in(const TempDir& dir) {
  return static_cast<size_t>(
      std::distance(fs::directory_iterator(dir / ""), fs::directory_iterator()));
}

// Writes the claim of a process on another host, which it touched `age` ago.
void write_claim(const TempDir& dir, const std::string& id, std::chrono::seconds age) {
  const Started owner{.fingerprint = "",
                      .host = "elsewhere",
                      .boot = "x",
                      .start = "x",
                      .process = 1,
                      .process_start = 1,
                      .may_replace = false};
  write_bytes(dir / (id + "~elsewhere~1~0"), to_json(owner));
  fs::create_hard_link(dir / (id + "~elsewhere~1~0"), dir / id);
  timespec times[2] = {{.tv_sec = 0, .tv_nsec = UTIME_NOW}, {}};
  times[1].tv_sec = ::time(nullptr) - age.count();
  ASSERT_EQ(::utimensat(AT_FDCWD, (dir / id).c_str(), times, 0), 0);
}

TEST(Claim, OneOwnerAtATime) {
  const TempDir dir;
  {
    std::optional<Claim> first = take(dir, "a");
    ASSERT_TRUE(first);
    EXPECT_FALSE(take(dir, "a"));
    EXPECT_TRUE(take(dir, "a.b"));
    EXPECT_TRUE(first->keep());
  }
  EXPECT_EQ(files_in(dir), 0u);
  EXPECT_TRUE(take(dir, "a"));
}

TEST(Claim, ManyThreadsNeverShareATask) {
  const TempDir dir;
  constexpr int kThreads = 4, kTasks = 100;
  std::vector<std::atomic<int>> owners(kTasks), wins(kTasks);
  std::atomic<int> shared{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < kTasks; ++i) {
        const std::optional<Claim> claim = take(dir, "t" + std::to_string(i));
        if (!claim) continue;
        if (owners[i].fetch_add(1) != 0) ++shared;
        ++wins[i];
        owners[i].fetch_sub(1);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(shared, 0);
  for (int i = 0; i < kTasks; ++i) EXPECT_GE(wins[i], 1);
  EXPECT_EQ(files_in(dir), 0u);
}

TEST(Claim, ASilentOwnerLosesItAndNoticesThat) {
  const TempDir dir;
  write_claim(dir, "old", 61s);
  write_claim(dir, "young", 30s);
  write_claim(dir, "ahead", -61s);  // from before the server's clock was put back
  EXPECT_FALSE(take(dir, "young"));
  EXPECT_TRUE(take(dir, "ahead"));
  std::optional<Claim> mine = take(dir, "old", 2s);
  ASSERT_TRUE(mine);
  EXPECT_EQ(files_in(dir), 4u);  // each claim has two names, and nothing is left of the old owner
  // Our own claim becomes old in turn, and another owner takes it.
  timespec times[2] = {{.tv_sec = 0, .tv_nsec = UTIME_NOW}, {.tv_sec = 1000, .tv_nsec = 0}};
  ASSERT_EQ(::utimensat(AT_FDCWD, (dir / "old").c_str(), times, 0), 0);
  const std::optional<Claim> other = take(dir, "old", 2s);
  ASSERT_TRUE(other);
  EXPECT_FALSE(mine->keep());
  mine.reset();  // must not release the claim of the new owner
  EXPECT_FALSE(take(dir, "old", 2s));
}

TEST(Claim, ThatOfADeadProcessOfThisHostIsFree) {
  const TempDir dir;
  const pid_t child = fork();
  if (child == 0) _exit(0);
  ASSERT_EQ(waitpid(child, nullptr, 0), child);
  const Process& us = this_process();
  const Started dead{.fingerprint = "",
                     .host = us.host,
                     .boot = us.boot,
                     .start = "x",
                     .process = child,
                     .process_start = us.start,
                     .may_replace = false};
  write_bytes(dir / "a~x~1~0", to_json(dead));
  fs::create_hard_link(dir / "a~x~1~0", dir / "a");
  EXPECT_TRUE(take(dir, "a", 600s));
  EXPECT_EQ(files_in(dir), 0u);
}

TEST(Claim, SweepingRemovesWhatKilledProcessesLeft) {
  const TempDir dir;
  write_claim(dir, "old", 61s);
  write_claim(dir, "young", 5s);
  // This file was never linked, and is young.
  write_bytes(dir / "b~elsewhere~1~2", read_bytes(dir / "old"));
  ASSERT_TRUE(sweep_claims(dir / "", 60s));
  EXPECT_EQ(files_in(dir), 3u);
  EXPECT_FALSE(fs::exists(dir / "old"));
  EXPECT_TRUE(fs::exists(dir / "young"));
}

}  // namespace
}  // namespace ferry::batch::claim_test
