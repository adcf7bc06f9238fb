// Staging directories of bundles: existing targets, failing writes, remains of dead processes.
#include "packer/bundle_plan.h"
#include "packer/bundle_reader.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstring>

#include "core/sha256.h"
#include "packer/staging_directory.h"
#include "tests/packer/tiny_bundle.h"

namespace ferry::packer::staging_directory_test {
namespace {

using Names = std::vector<std::string>;

// Tries to write over `dir`/out, which must fail and must change nothing else in `dir`.
Error failed_write(const TempDir& dir, const TinyModel& model, bool overwrite) {
  const Names before = names_in(dir.path());
  const auto plan = BundlePlan::make(model.input(), model.source, 0);
  EXPECT_TRUE(plan);
  ThreadPool pool(2);
  const auto written = plan->write(dir / "out", overwrite, pool, {});
  EXPECT_FALSE(written);
  EXPECT_EQ(names_in(dir.path()), before);
  return written ? Error{} : written.error();
}

TEST(BundleWriter, ExistingTargetIsLeftAloneUnlessToldOtherwise) {
  const TempDir dir;
  const TinyModel model;
  write_tiny_bundle(model, dir / "out");
  const auto before = read_directory(dir / "out");
  EXPECT_EQ(failed_write(dir, model, false).code, ErrorCode::kExists);
  EXPECT_EQ(read_directory(dir / "out"), before);
}

TEST(BundleWriter, OverwriteReplacesABundle) {
  const TempDir dir;
  TinyModel model;
  write_tiny_bundle(model, dir / "out");
  const auto before = read_directory(dir / "out");
  write_file(dir / "x", "x");
  model.copied = {copied_file("x.txt", dir / "x")};
  const auto plan = BundlePlan::make(model.input(), model.source, 0);
  ASSERT_TRUE(plan);
  ThreadPool pool(2);
  const auto written = plan->write(dir / "out/", true, pool, {});
  ASSERT_TRUE(written) << written.error().message;
  EXPECT_EQ(read_directory(dir / "out").size(), before.size() + 1);
  EXPECT_EQ(names_in(dir.path()), (Names{"out", "x"}));
}

TEST(BundleWriter, OverwriteReplacesNothingButABundle) {
  const TempDir dir;
  const TinyModel model;
  std::filesystem::create_directory(dir / "out");
  write_file(dir / "out/thesis.txt", "years of work");
  EXPECT_EQ(failed_write(dir, model, true).code, ErrorCode::kExists);
  EXPECT_EQ(read_file(dir / "out/thesis.txt"), "years of work");
}

TEST(BundleWriter, FailingSourceLeavesTheOldBundle) {
  const TempDir dir;
  TinyModel model;
  write_tiny_bundle(model, dir / "out");
  const auto before = read_directory(dir / "out");
  model.source.fail_at(3);
  const Error error = failed_write(dir, model, true);
  EXPECT_EQ(error.code, ErrorCode::kIo);
  EXPECT_EQ(error.message, "checkpoint: the disk is on fire");
  EXPECT_EQ(read_directory(dir / "out"), before);
}

TEST(BundleWriter, ChangedSourceMakesNoBundle) {
  const TempDir dir;
  TinyModel model;
  model.source.pretend_change();
  EXPECT_EQ(failed_write(dir, model, false).code, ErrorCode::kIo);
}

TEST(BundleWriter, CopiedFileThatChangesAfterPlanningMakesNoBundle) {
  const TempDir dir;
  TinyModel model;
  write_file(dir / "x", "four");
  model.copied = {copied_file("x.txt", dir / "x")};
  const auto plan = BundlePlan::make(model.input(), model.source, 0);
  ASSERT_TRUE(plan);
  write_file(dir / "x", "longer than four");
  ThreadPool pool(1);
  const auto written = plan->write(dir / "out", false, pool, {});
  ASSERT_FALSE(written);
  EXPECT_EQ(written.error().code, ErrorCode::kIo);
  EXPECT_EQ(names_in(dir.path()), (Names{"x"}));
}

TEST(BundleWriter, WhatALaterRunGoesOnWithIsSyncedOrRefused) {
  const TempDir dir;
  TinyModel model;
  const auto plan = BundlePlan::make(model.input(), model.source, 0);
  ASSERT_TRUE(plan);
  ThreadPool pool(1);
  for (const BundleTarget& target :
       {BundleTarget{.directory = dir / "out", .resume = true, .synced = false},
        BundleTarget{.directory = dir / "out", .synced = false, .parts = dir / "parts"}}) {
    const auto written = plan->write(target, pool, {});
    ASSERT_FALSE(written);
    EXPECT_EQ(written.error().code, ErrorCode::kUsage);
    EXPECT_EQ(names_in(dir.path()), Names{});
  }
}

TEST(BundleWriter, FileTooLargeForTheSystemLeavesNothing) {
  const TempDir dir;
  rlimit old{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &old), 0);
  const auto old_handler = std::signal(SIGXFSZ, SIG_IGN);
  for (rlim_t limit : {0, 100, 600, 1500}) {
    const rlimit small{limit, old.rlim_max};
    ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
    const Error error = failed_write(dir, TinyModel(), false);
    ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &old), 0);
    EXPECT_EQ(error.code, ErrorCode::kIo) << limit;
    EXPECT_NE(error.message.find(".ferry-tmp-"), std::string::npos) << error.message;
  }
  std::signal(SIGXFSZ, old_handler);
}

TEST(BundleWriter, MissingParentsAreMade) {
  const TempDir dir;
  write_tiny_bundle(TinyModel(), dir / "a//b/out");
  EXPECT_EQ(names_in(dir / "a/b"), Names{"out"});
  {
    const auto staging = StagingDirectory::create(dir / "c/d/out", false);
    ASSERT_TRUE(staging) << staging.error().message;
  }
  EXPECT_EQ(names_in(dir.path()), Names{"a"});  // nothing was published
  std::ofstream(dir / "file") << "x";
  const auto refused = StagingDirectory::create(dir / "file/d/out", false);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kIo);
}

TEST(BundleWriter, RemainsOfDeadProcessesAreRemoved) {
  const TempDir dir;
  // This process id is above the largest one of Linux, so no such process exists.
  const std::string dead = dir / ".out.ferry-tmp-999999999";
  std::filesystem::create_directory(dead);
  write_file(dead + "/half.pte", "half");
  std::filesystem::create_directory(dir / ".other.ferry-tmp-999999999");
  std::filesystem::create_directory(dir / ".out.ferry-tmp-1");  // process 1 is alive
  std::filesystem::create_directory(dir / ".out.ferry-tmp-x9");
  write_tiny_bundle(TinyModel(), dir / "out");
  EXPECT_EQ(names_in(dir.path()),
            (Names{".other.ferry-tmp-999999999", ".out.ferry-tmp-1", ".out.ferry-tmp-x9", "out"}));
}

TEST(BundleWriter, LockedRemainsAreSomebodysWork) {
  const TempDir dir;
  const std::string held = dir / ".out.ferry-tmp-999999999";
  std::filesystem::create_directory(held);
  const int fd = ::open(held.c_str(), O_RDONLY | O_DIRECTORY);
  ASSERT_GE(fd, 0);
  ASSERT_EQ(::flock(fd, LOCK_EX), 0);
  const TinyModel model;
  const auto plan = BundlePlan::make(model.input(), model.source, 0);
  ASSERT_TRUE(plan);
  ThreadPool pool(1);
  const auto written = plan->write(dir / "out", false, pool, {});
  ASSERT_FALSE(written);
  EXPECT_EQ(written.error().code, ErrorCode::kExists);
  EXPECT_EQ(written.error().message,
            (dir / "out") + ": another process is writing it (in '.out.ferry-tmp-999999999')");
  EXPECT_EQ(names_in(dir.path()), Names{".out.ferry-tmp-999999999"});
  write_tiny_bundle(TinyModel(), dir / "another");
  ::close(fd);
  write_tiny_bundle(TinyModel(), dir / "out");
  EXPECT_EQ(names_in(dir.path()), (Names{"another", "out"}));
}

TEST(BundleWriter, TheNameIsTakenBeforeAnythingIsWritten) {
  const TempDir dir;
  auto first = StagingDirectory::create(dir / "out", false);
  ASSERT_TRUE(first) << first.error().message;
  // A lock does not exclude the process that holds it, so another process tries.
  const auto second = [&] {
    const auto staging = StagingDirectory::create(dir / "out", true);
    std::fprintf(stderr, "%s", staging ? "made" : staging.error().message.c_str());
    ::_exit(0);
  };
  EXPECT_EXIT(second(), testing::ExitedWithCode(0), "out: another process is writing it ");
  EXPECT_EQ(names_in(dir.path()).size(), 1u);
  ASSERT_TRUE(first->publish(/*synced=*/true));
  EXPECT_EQ(names_in(dir.path()), Names{"out"});
}

// Directories are swept all the time here, and no maker loses its directory.
TEST(BundleWriter, ADirectoryThatIsBeingMadeIsNotSwept) {
  const TempDir dir;
  const pid_t sweeper = ::fork();
  if (sweeper == 0) {
    while (true) (void)StagingDirectory::create(dir / "out", true);
  }
  size_t made = 0, kept = 0;
  for (int i = 0; i < 300; ++i) {
    const auto staging = StagingDirectory::create(dir / "out", true);
    if (!staging) {
      EXPECT_NE(staging.error().message.find("another process"), std::string::npos)
          << staging.error().message;
      continue;
    }
    ++made;
    kept += std::filesystem::exists(staging->path());
  }
  ::kill(sweeper, SIGKILL);
  ::waitpid(sweeper, nullptr, 0);
  EXPECT_EQ(kept, made);
}

TEST(BundleWriter, ALinkToADirectoryIsNamedAsSuch) {
  const TempDir dir;
  std::filesystem::create_directory(dir / "real");
  std::filesystem::create_symlink("real", dir / "out");
  for (const bool overwrite : {false, true}) {
    const auto staging = StagingDirectory::create(dir / "out", overwrite);
    ASSERT_FALSE(staging);
    EXPECT_EQ(staging.error().code, ErrorCode::kExists);
    EXPECT_EQ(staging.error().message,
              (dir / "out") + ": is a symbolic link to a directory: name the directory itself");
  }
}

// -- more than one tile

}  // namespace
}  // namespace ferry::packer::staging_directory_test
