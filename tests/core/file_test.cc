#include "core/file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <thread>

namespace ferry::file_test {
namespace {

namespace fs = std::filesystem;

class FileTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = testing::TempDir() + "ferry_file_XXXXXX";
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    directory_ = pattern;
  }
  void TearDown() override { fs::remove_all(directory_); }

  std::string path(const std::string& name) const { return directory_ + "/" + name; }
  std::string make(const std::string& name, const std::string& text) const {
    std::ofstream(path(name), std::ios::binary) << text;
    return path(name);
  }

  std::string directory_;
};

std::string text_at(const InputFile& file, uint64_t offset, size_t size) {
  std::string text(size, '?');
  const Status status = file.read_at(offset, std::as_writable_bytes(std::span(text)));
  return status ? text : "error: " + status.error().message;
}

TEST_F(FileTest, ReadsAtAnyPlace) {
  const auto file = InputFile::open(make("a", "0123456789"));
  ASSERT_TRUE(file);
  EXPECT_EQ(file->size(), 10u);
  EXPECT_EQ(text_at(*file, 0, 10), "0123456789");
  EXPECT_EQ(text_at(*file, 7, 3), "789");
  EXPECT_EQ(text_at(*file, 10, 0), "");
}

TEST_F(FileTest, ReadingPastTheEndIsAnError) {
  const auto file = InputFile::open(make("a", "0123456789"));
  ASSERT_TRUE(file);
  std::byte buffer[4];
  for (uint64_t offset : {uint64_t{7}, uint64_t{11}, UINT64_MAX}) {
    const Status status = file->read_at(offset, buffer);
    ASSERT_FALSE(status);
    EXPECT_EQ(status.error().code, ErrorCode::kIo);
  }
}

TEST_F(FileTest, AFileThatShrinksGivesAnErrorAndNoSignal) {
  const auto file = InputFile::open(make("a", std::string(100, 'x')));
  ASSERT_TRUE(file);
  EXPECT_TRUE(file->check_unchanged());
  ASSERT_EQ(::truncate(path("a").c_str(), 50), 0);
  EXPECT_FALSE(file->check_unchanged());
  EXPECT_NE(text_at(*file, 40, 20).find("ended early at offset 50"), std::string::npos);
}

TEST_F(FileTest, AChangeIsSeenThoughItsTimeWasSetBack) {
  const auto file = InputFile::open(make("a", "0123456789"));
  ASSERT_TRUE(file);
  struct stat before {};
  ASSERT_EQ(::stat(path("a").c_str(), &before), 0);
  std::fstream(path("a"), std::ios::in | std::ios::out | std::ios::binary) << "x";
  const timespec times[] = {before.st_atim, before.st_mtim};
  ASSERT_EQ(::utimensat(AT_FDCWD, path("a").c_str(), times, 0), 0);  // as `touch -r` does
  const Status status = file->check_unchanged();
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().message, path("a") + ": changed while it was being read");
}

TEST_F(FileTest, ALinkIsRefusedWhereNoneIsWanted) {
  fs::create_symlink(make("a", "abc"), path("link"));
  EXPECT_TRUE(InputFile::open(path("a"), InputFile::Links::kRefuse));
  const auto file = InputFile::open(path("link"), InputFile::Links::kRefuse);
  ASSERT_FALSE(file);
  EXPECT_EQ(file.error().message, path("link") + ": not a regular file but a symbolic link");
}

// Sets the limit of open files, and restores it.
class OpenFileLimit {
 public:
  explicit OpenFileLimit(rlim_t most) {
    ::getrlimit(RLIMIT_NOFILE, &saved_);
    const rlimit limit{most, saved_.rlim_max};
    ::setrlimit(RLIMIT_NOFILE, &limit);
  }
  ~OpenFileLimit() { ::setrlimit(RLIMIT_NOFILE, &saved_); }
  OpenFileLimit(const OpenFileLimit&) = delete;
  OpenFileLimit& operator=(const OpenFileLimit&) = delete;

 private:
  rlimit saved_{};
};

TEST_F(FileTest, MoreFilesThanMayBeOpenAreRead) {
  const OpenFileLimit limit(40);
  std::vector<InputFile> files;
  for (int i = 0; i < 200; ++i) {
    const std::string name = std::to_string(1000 + i);
    auto file = InputFile::open(make(name, name));
    ASSERT_TRUE(file) << i << ": " << file.error().message;
    files.push_back(*std::move(file));
  }
  std::atomic<size_t> right = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (size_t i = 0; i < files.size(); ++i) {
        const size_t at = (i * 37 + static_cast<size_t>(t) * 11) % files.size();
        right += text_at(files[at], 0, 4) == std::to_string(1000 + at);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(right, 4 * files.size());
  EXPECT_TRUE(OutputFile::create(path("new"), 1)) << "room is left for others";
}

TEST_F(FileTest, AFileThatWasReplacedMeanwhileIsNotOpenedAgain) {
  const OpenFileLimit limit(40);
  const auto first = InputFile::open(make("a", "old"));
  ASSERT_TRUE(first);
  std::vector<InputFile> others;
  for (int i = 0; i < 60; ++i) {
    others.push_back(InputFile::open(make(std::to_string(i), "x")).value());
  }
  fs::rename(make("b", "new"), path("a"));
  EXPECT_EQ(text_at(*first, 0, 3), "error: " + path("a") + ": changed while it was being read");
  EXPECT_FALSE(first->check_unchanged());
  EXPECT_EQ(text_at(others[0], 0, 1), "x");
}

TEST_F(FileTest, OnlyRegularFilesAreOpened) {
  ASSERT_EQ(::mkfifo(path("fifo").c_str(), 0600), 0);
  fs::create_symlink("loop", path("loop"));
  fs::create_symlink("/dev/zero", path("zero"));
  fs::create_symlink("fifo", path("to_fifo"));
  struct Case {
    std::string path, message;
  };
  const Case cases[] = {
      {path("fifo"), path("fifo") + ": not a regular file but a FIFO"},
      {path("to_fifo"), path("to_fifo") + ": not a regular file but a FIFO"},
      {path("zero"), path("zero") + ": not a regular file but a device"},
      {directory_, directory_ + ": not a regular file but a directory"},
      {path("absent"), path("absent") + ": cannot open: No such file or directory"},
      {path("loop"), path("loop") + ": cannot open: Too many levels of symbolic links"},
  };
  for (const Case& c : cases) {
    const auto file = InputFile::open(c.path);
    ASSERT_FALSE(file);
    EXPECT_EQ(file.error().message, c.message);
    EXPECT_FALSE(MappedFile::open(c.path));
    EXPECT_FALSE(read_text_file(c.path, 1000));
  }
}

TEST_F(FileTest, SymlinksOfTheUserAreFollowed) {
  make("a", "abc");
  fs::create_symlink("a", path("link"));
  EXPECT_EQ(read_text_file(path("link"), 3).value(), "abc");
}

TEST_F(FileTest, TextFilesHaveALimit) {
  make("a", "abc");
  EXPECT_EQ(read_text_file(path("a"), 3).value(), "abc");
  EXPECT_FALSE(read_text_file(path("a"), 2));
}

TEST_F(FileTest, MappingHasTheBytesOfTheFile) {
  make("a", "abc");
  make("empty", "");
  auto mapped = MappedFile::open(path("a"));
  ASSERT_TRUE(mapped);
  MappedFile moved = std::move(*mapped);
  ASSERT_EQ(moved.bytes().size(), 3u);
  EXPECT_EQ(moved.bytes()[2], std::byte{'c'});
  EXPECT_EQ(MappedFile::open(path("empty")).value().bytes().size(), 0u);
}

TEST_F(FileTest, WritesAtAnyPlaceAndNeverOverwritesAFile) {
  auto out = OutputFile::create(path("new"), 6);
  ASSERT_TRUE(out);
  const std::string text = "xyz";
  EXPECT_TRUE(out->write_at(3, std::as_bytes(std::span(text))));
  EXPECT_TRUE(out->sync_and_close());
  EXPECT_TRUE(sync_directory(directory_));
  EXPECT_EQ(read_text_file(path("new"), 10).value(), std::string("\0\0\0xyz", 6));
  const auto again = OutputFile::create(path("new"), 6);
  ASSERT_FALSE(again);
  EXPECT_EQ(again.error().code, ErrorCode::kExists);
  EXPECT_EQ(again.error().message, path("new") + ": cannot create: File exists");
}

TEST_F(FileTest, AFileThatCannotBeThatLargeIsNotLeftBehind) {
  auto out = OutputFile::create(path("big"), UINT64_MAX / 2 + 1);
  ASSERT_FALSE(out);
  EXPECT_EQ(out.error().code, ErrorCode::kIo);
  EXPECT_FALSE(fs::exists(path("big")));
}

TEST_F(FileTest, RemovesATreeButNotWhatLinksPointTo) {
  make("kept", "abc");
  fs::create_directories(path("tree/a/b"));
  make("tree/a/b/c", "x");
  fs::create_symlink(path("kept"), path("tree/a/link"));
  fs::create_directory_symlink(directory_, path("tree/up"));
  EXPECT_TRUE(remove_tree(path("tree")));
  EXPECT_FALSE(fs::exists(path("tree")));
  EXPECT_TRUE(fs::exists(path("kept")));
  EXPECT_TRUE(remove_tree(path("tree")));  // nothing is left to remove
}

}  // namespace
}  // namespace ferry::file_test
