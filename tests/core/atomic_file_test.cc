#include "core/atomic_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <thread>
#include <vector>

#include "tests/formats/temp_dir.h"

namespace ferry::atomic_file_test {
namespace {

namespace fs = std::filesystem;

std::string contents(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::set<std::string> names_in(const std::string& path) {
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(path)) names.insert(entry.path().filename());
  return names;
}

TEST(AtomicFile, IsThereOnlyAfterPublish) {
  const TempDir dir;
  {
    auto file = AtomicFile::create(dir / "a", IfExists::kRefuse, 5);
    ASSERT_TRUE(file) << file.error().message;
    const std::string text = "hello";
    ASSERT_TRUE(file->write_at(0, std::as_bytes(std::span(text))));
    EXPECT_FALSE(fs::exists(dir / "a"));
    ASSERT_TRUE(file->publish());
    EXPECT_EQ(contents(dir / "a"), "hello");
  }
  EXPECT_EQ(names_in(dir / "."), std::set<std::string>{"a"});
}

TEST(AtomicFile, NothingIsLeftWithoutPublish) {
  const TempDir dir;
  for (const IfExists existing : {IfExists::kRefuse, IfExists::kReplace}) {
    ASSERT_TRUE(AtomicFile::create(dir / "a", existing, 100));
    EXPECT_TRUE(fs::is_empty(dir / "."));
  }
}

TEST(AtomicFile, RefusesWhatExists) {
  const TempDir dir;
  ASSERT_TRUE(write_atomically(dir / "a", "one", IfExists::kRefuse));
  const Status again = write_atomically(dir / "a", "two", IfExists::kRefuse);
  ASSERT_FALSE(again);
  EXPECT_EQ(again.error().code, ErrorCode::kExists);
  EXPECT_NE(again.error().message.find("File exists"), std::string::npos) << again.error().message;
  EXPECT_EQ(contents(dir / "a"), "one");
}

// The target appears while the file is being written.
TEST(AtomicFile, RefusesWhatAppears) {
  const TempDir dir;
  auto file = AtomicFile::create(dir / "a", IfExists::kRefuse, 3);
  ASSERT_TRUE(file);
  std::ofstream(dir / "a") << "mine";
  EXPECT_FALSE(file->publish());
  EXPECT_EQ(contents(dir / "a"), "mine");
}

TEST(AtomicFile, ReplacesInOneStep) {
  const TempDir dir;
  ASSERT_TRUE(write_atomically(dir / "a", "one", IfExists::kReplace));
  std::ifstream before(dir / "a");  // keeps reading the file that it has opened
  ASSERT_TRUE(write_atomically(dir / "a", "two", IfExists::kReplace));
  EXPECT_EQ(contents(dir / "a"), "two");
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(before), {}), "one");
  EXPECT_EQ(names_in(dir / "."), std::set<std::string>{"a"});
}

TEST(AtomicFile, ReplacesALinkAndNotWhatItNames) {
  const TempDir dir;
  std::ofstream(dir / "other") << "other";
  fs::create_symlink("other", dir / "a");
  ASSERT_TRUE(write_atomically(dir / "a", "new", IfExists::kReplace));
  EXPECT_FALSE(fs::is_symlink(dir / "a"));
  EXPECT_EQ(contents(dir / "other"), "other");
}

TEST(AtomicFile, ReplacesRegularFilesOnly) {
  const TempDir dir;
  fs::create_directory(dir / "d");
  ASSERT_EQ(::mkfifo((dir / "fifo").c_str(), 0600), 0);
  for (const char* name : {"d", "fifo"}) {
    const Status status = write_atomically(dir / name, "x", IfExists::kReplace);
    ASSERT_FALSE(status) << name;
    EXPECT_EQ(status.error().code, ErrorCode::kIo);
  }
}

TEST(AtomicFile, WantsANameInADirectory) {
  const TempDir dir;
  for (const std::string name : {"", ".", "..", "sub/"}) {
    EXPECT_EQ(write_atomically(dir / name, "x", IfExists::kRefuse).error().code, ErrorCode::kUsage);
  }
  EXPECT_EQ(write_atomically("", "x", IfExists::kRefuse).error().code, ErrorCode::kUsage);
  EXPECT_EQ(write_atomically(std::string("a\0b", 3), "x", IfExists::kRefuse).error().code,
            ErrorCode::kUsage);
  EXPECT_EQ(write_atomically(dir / "absent/a", "x", IfExists::kRefuse).error().code,
            ErrorCode::kIo);
}

TEST(AtomicFile, HasTheModeOfANewFile) {
  const TempDir dir;
  const mode_t before = ::umask(027);
  ASSERT_TRUE(write_atomically(dir / "a", "x", IfExists::kRefuse));
  ASSERT_TRUE(write_atomically(dir / "a", "x", IfExists::kReplace));
  ::umask(before);
  struct stat info {};
  ASSERT_EQ(::stat((dir / "a").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0640u);
}

TEST(AtomicFile, WhatAKilledProcessLeftIsReplaced) {
  const TempDir dir;
  std::ofstream(dir / ".a.ferry-new") << "left between link and rename";
  ASSERT_TRUE(write_atomically(dir / "a", "new", IfExists::kReplace));
  EXPECT_EQ(names_in(dir / "."), std::set<std::string>{"a"});
  EXPECT_EQ(contents(dir / "a"), "new");
}

TEST(AtomicFile, AKilledProcessLeavesNothing) {
  const TempDir dir;
  const pid_t child = ::fork();
  if (child == 0) {
    const auto file = AtomicFile::create(dir / "a", IfExists::kRefuse, 1 << 20);
    ::raise(file ? SIGKILL : SIGTERM);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
  EXPECT_TRUE(fs::is_empty(dir / "."));
}

// Many writers replace one name. At any time the name has the whole file of one of them.
TEST(AtomicFile, WritersOfOneNameDoNotMix) {
  const TempDir dir;
  std::vector<std::thread> writers;
  for (char c = 'a'; c < 'e'; ++c) {
    writers.emplace_back([&dir, c] {
      for (int i = 0; i < 20; ++i) {
        const Status status =
            write_atomically(dir / "f", std::string(100'000, c), IfExists::kReplace);
        EXPECT_TRUE(status) << status.error().message;
        const std::string found = contents(dir / "f");
        EXPECT_EQ(found.size(), 100'000u);
        EXPECT_EQ(std::count(found.begin(), found.end(), found[0]), 100'000);
      }
    });
  }
  for (std::thread& writer : writers) writer.join();
  EXPECT_EQ(names_in(dir / "."), std::set<std::string>{"f"});
}

TEST(OutputFile, WhatIsThereIsOpenedOnlyUnderItsOwnName) {
  const TempDir dir;
  std::ofstream(dir / "a") << "0123";
  const auto file = OutputFile::open_existing(dir / "a");
  ASSERT_TRUE(file);
  EXPECT_EQ(*file->size(), 4u);
  std::byte two[2];
  ASSERT_TRUE(file->read_at(1, two));
  EXPECT_EQ(static_cast<char>(two[1]), '2');
  EXPECT_EQ(file->read_at(3, two).error().code, ErrorCode::kIo);
  fs::create_symlink("a", dir / "link");
  EXPECT_FALSE(OutputFile::open_existing(dir / "link"));
  fs::create_hard_link(dir / "a", dir / "second");
  EXPECT_FALSE(OutputFile::open_existing(dir / "a"));
  EXPECT_FALSE(OutputFile::open_existing(dir / "."));
  EXPECT_FALSE(OutputFile::open_existing(dir / "absent"));
}

}  // namespace
}  // namespace ferry::atomic_file_test
