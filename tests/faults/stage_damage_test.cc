// Stages are untrusted. They are damaged between a kill and the run that continues. The result must
// have the same bytes nevertheless, or be refused. Other tests show when a stage is kept.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <random>
#include <sstream>

#include "tests/faults/fault.h"

namespace ferry::stage_damage_test {
namespace {

namespace fs = std::filesystem;
using Args = std::vector<std::string>;

constexpr auto kTree = fs::copy_options::recursive;

class StageTest : public testing::Test {
 protected:
  void SetUp() override {
    fs::create_directory(dir_ / "out");
    ASSERT_EQ(run_ferry_once(convert({"--dtype", "bf16"})).code, 0);
    expected_ = files_in(target());
    fs::remove_all(target());
    leave_stage();
    fs::copy(stage_, dir_ / "saved", kTree);
    for (const auto& entry : fs::directory_iterator(stage_ + "/bundle")) {
      if (entry.path().extension() == ".ptd") data_.push_back(entry.path().filename());
    }
    ASSERT_FALSE(data_.empty());
  }

  std::string target() const { return dir_ / "out/b"; }
  Args convert(const Args& options) const {
    Args args = {"convert", fixture("llama3_tied"), "-o", target(), "--threads", "1"};
    args.insert(args.end(), options.begin(), options.end());
    return args;
  }
  Args resume() const { return convert({"--dtype", "bf16", "--resume"}); }
  void leave_stage() {
    ASSERT_TRUE(run_and_kill(resume(), 45));
    stage_ = stage_of(target());
    ASSERT_FALSE(stage_.empty());
  }
  void restore() {
    fs::remove_all(dir_ / "out");
    fs::create_directory(dir_ / "out");
    fs::copy(dir_ / "saved", stage_, kTree);
  }
  std::string journal() const { return stage_ + "/journal"; }
  std::string data_file(size_t i) const { return stage_ + "/bundle/" + data_[i]; }

  // Runs the command that continues, and checks its result.
  Outcome go_on() {
    ++trials_;
    Outcome outcome = run_ferry_once(resume());
    if (outcome.code == 0) {
      EXPECT_TRUE(files_in(target()) == expected_) << "other bytes";
      EXPECT_EQ(entries_of(dir_ / "out"), std::set<std::string>{"b"});
    } else {
      ++refused_;
      EXPECT_EQ(outcome.error_lines(), 1u) << outcome.err;
      EXPECT_FALSE(fs::exists(target()));
    }
    return outcome;
  }
  static bool went_on(const Outcome& outcome) {
    return outcome.err.find("went on with an earlier run") != std::string::npos;
  }
  void print(const char* what) const {
    std::printf("crash: stage, %s: %ld trials: other bytes 0, refused %ld\n", what, trials_,
                refused_);
  }

  TempDir dir_;
  Files expected_;
  std::string stage_;
  std::vector<std::string> data_;
  long trials_ = 0, refused_ = 0;
};

void flip(const std::string& path, size_t at, int bit) {
  std::string bytes = read_bytes(path);
  bytes[at] = static_cast<char>(bytes[at] ^ (1 << bit));
  write_bytes(path, bytes);
}

TEST_F(StageTest, GoesOn) {
  const Outcome outcome = go_on();
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_TRUE(went_on(outcome)) << outcome.err;
}

TEST_F(StageTest, EveryByteOfTheJournal) {
  const auto size = static_cast<long>(read_bytes(journal()).size());
  std::mt19937 random(1);
  for (const long at : points(size, 6)) {
    SCOPED_TRACE(at);
    restore();
    flip(journal(), static_cast<size_t>(at - 1), static_cast<int>(random() % 8));
    ASSERT_EQ(go_on().code, 0);
  }
  print("journal flipped");
}

TEST_F(StageTest, BytesOfThePayload) {
  std::mt19937_64 random(2);
  const long trials = std::min(tries(5), 1000L);
  for (long i = 0; i < trials; ++i) {
    restore();
    const std::string path = data_file(random() % data_.size());
    const size_t at = random() % fs::file_size(path);
    SCOPED_TRACE(path + " at " + std::to_string(at));
    flip(path, at, static_cast<int>(random() % 8));
    ASSERT_EQ(go_on().code, 0);
  }
  print("payload flipped");
}

TEST_F(StageTest, EveryLengthOfTheJournal) {
  const auto size = static_cast<long>(read_bytes(journal()).size());
  for (const long length : points(size, 4)) {
    SCOPED_TRACE(length);
    restore();
    fs::resize_file(journal(), static_cast<uintmax_t>(length - 1));
    ASSERT_EQ(go_on().code, 0);
  }
  print("journal shortened");
}

TEST_F(StageTest, LinesThatMoveOrComeFromAnotherJournal) {
  const std::string text = read_bytes(journal());
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line + '\n');
  ASSERT_GT(lines.size(), 3u);
  const auto join = [](const std::vector<std::string>& all) {
    std::string out;
    for (const std::string& line : all) out += line;
    return out;
  };
  std::vector<std::string> swapped = lines, twice = lines, missing = lines, headless = lines;
  std::swap(swapped[1], swapped[2]);
  twice.insert(twice.begin() + 2, lines[1]);
  missing.erase(missing.begin() + 1);
  headless.erase(headless.begin());
  restore();
  fs::remove_all(stage_);
  leave_stage();  // the same lines in a journal of another run
  const std::string other = read_bytes(journal());
  ASSERT_NE(other, text);
  const std::string other_head = other.substr(0, other.find('\n') + 1);
  std::vector<std::string> mixed = lines;
  mixed[0] = other_head;
  const std::string changed[] = {join(swapped),        join(twice),
                                 join(missing),        join(headless),
                                 join(mixed),          other,
                                 text + text,          text + "\n",
                                 text + other,         "",
                                 std::string(64, 0),   text + std::string(4096, '\0'),
                                 join(lines) + "9 we", std::string(1, 0)};
  for (const std::string& journal_text : changed) {
    restore();
    write_bytes(journal(), journal_text);
    ASSERT_EQ(go_on().code, 0);
  }
  print("lines moved");
}

TEST_F(StageTest, FilesThatAreNotWhatTheyWere) {
  const std::function<void()> changes[] = {
      [&] { fs::remove(data_file(0)); },
      [&] { fs::resize_file(data_file(0), fs::file_size(data_file(0)) - 1); },
      [&] { fs::resize_file(data_file(0), fs::file_size(data_file(0)) + 1); },
      [&] { fs::resize_file(data_file(0), 0); },
      [&] {
        fs::rename(data_file(0), dir_ / "moved");
        fs::create_symlink(dir_ / "moved", data_file(0));
      },
      [&] { fs::create_hard_link(data_file(0), dir_ / "second"); },
      [&] {
        fs::remove(data_file(0));
        fs::create_directories(data_file(0) + "/a/b");
      },
      [&] {
        fs::remove(data_file(0));
        ::mkfifo(data_file(0).c_str(), 0600);
      },
      [&] { write_bytes(stage_ + "/bundle/stranger.txt", "x"); },
      [&] { fs::create_directories(stage_ + "/bundle/sub/sub"); },
      [&] { write_bytes(stage_ + "/bundle/manifest.json", "{}"); },
      [&] { write_bytes(stage_ + "/stranger.txt", "x"); },
      [&] { fs::remove_all(stage_ + "/bundle"); },
      [&] { fs::remove(journal()); },
      [&] {
        fs::rename(journal(), dir_ / "journal");
        fs::create_symlink(dir_ / "journal", journal());
      },
      [&] {
        fs::remove(journal());
        ::mkfifo(journal().c_str(), 0600);
      },
  };
  for (size_t i = 0; i < std::size(changes); ++i) {
    SCOPED_TRACE(i);
    restore();
    for (const char* name : {"moved", "second", "journal"}) fs::remove(dir_ / name);
    changes[i]();
    ASSERT_EQ(go_on().code, 0);
  }
  restore();
  fs::remove(journal());
  fs::create_directories(journal() + "/a");
  EXPECT_EQ(go_on().code, 5);
  print("files changed");
}

// Bytes between weights are zero in a bundle, and `check` reads them.
TEST_F(StageTest, BytesBetweenWeights) {
  for (const std::string& name : data_) {
    const std::string right = expected_.at(name);
    std::string dirty = right;
    for (char& byte : dirty) byte = byte == 0 ? 'x' : byte;
    write_bytes(stage_ + "/bundle/" + name, dirty);
  }
  EXPECT_EQ(go_on().code, 0);
}

TEST_F(StageTest, OfOtherOptionsIsNotTaken) {
  ASSERT_EQ(run_ferry_once(convert({"--resume"})).code, 0);
  EXPECT_EQ(entries_of(dir_ / "out"), std::set<std::string>{"b"});
  EXPECT_TRUE(files_in(target()) != expected_);
  EXPECT_EQ(run_ferry_once({"check", target()}).code, 0);
}

// The other source has equal name, size and header, and even an equal modification time.
TEST_F(StageTest, OfAnotherStateOfTheSourceIsNotTaken) {
  const std::string source = dir_ / "source";
  fs::copy(fixture("llama3_tied"), source, kTree);
  const Args args = {"convert", source, "-o", target(), "--resume", "--threads", "1"};
  fs::remove_all(stage_);
  ASSERT_TRUE(run_and_kill(args, 45));
  const std::string before = stage_of(target());
  ASSERT_FALSE(before.empty());
  const std::string file = source + "/model.safetensors";
  const auto time = fs::last_write_time(file);
  std::string bytes = read_bytes(file);
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  write_bytes(file, bytes);
  fs::last_write_time(file, time);
  const Outcome outcome = run_ferry_once(args);
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_FALSE(went_on(outcome));
  EXPECT_EQ(entries_of(dir_ / "out"), std::set<std::string>{"b"});
  ASSERT_EQ(run_ferry_once({"convert", source, "-o", dir_ / "direct"}).code, 0);
  EXPECT_TRUE(files_in(target()) == files_in(dir_ / "direct"));
}

TEST_F(StageTest, OneRunAtATime) {
  RunningFerry first(resume());
  first.signal(SIGSTOP);
  if (stage_of(target()).empty()) return;  // the first run has ended already
  const Outcome second = run_ferry_once(resume());
  EXPECT_TRUE(second.code == 2 || fs::exists(target())) << second.err;
  first.signal(SIGCONT);
  EXPECT_NE(first.wait().code, -1);
  EXPECT_TRUE(files_in(target()) == expected_);
}

// If the disk is full in the middle, the finished data is kept. If a sync fails, it is not.
TEST_F(StageTest, IsKeptWhereItIsOfUse) {
  for (const auto& [fault, kept] :
       {std::pair("pwrite errno 20 28", true), std::pair("fsync errno 2 5", false)}) {
    restore();
    const Fault failing(fault);
    const Outcome outcome = run_ferry_once(resume());
    EXPECT_EQ(outcome.code, 5) << outcome.err;
    EXPECT_EQ(!stage_of(target()).empty(), kept) << fault << ": " << outcome.err;
    EXPECT_EQ(outcome.err.find("the same command goes on") != std::string::npos, kept);
    EXPECT_EQ(outcome.error_lines(), 1u) << outcome.err;
  }
}

TEST(DiskSpace, IsAskedForBeforeAnythingIsWritten) {
  const TempDir dir;
  for (const char* option : {"--overwrite", "--resume"}) {
    const Fault full("statvfs errno 0 1000");
    const Outcome outcome =
        run_ferry_once({"convert", fixture("llama3_tied"), "-o", dir / "b", option});
    EXPECT_EQ(outcome.code, 5);
    EXPECT_NE(outcome.err.find("not enough space"), std::string::npos) << outcome.err;
    EXPECT_NE(outcome.err.find("1000 are free"), std::string::npos) << outcome.err;
    EXPECT_TRUE(fs::is_empty(dir / ".")) << outcome.err;
  }
}

TEST(NoSync, WaitsForNoDisk) {
  const TempDir dir;
  for (const char* call : {"fsync", "fdatasync"}) {
    const Fault none(std::string(call) + " errno 0 " + std::to_string(EIO));
    for (const Args& options : {Args{}, Args{"--to", "safetensors"}}) {
      Args args = {"convert", fixture("llama3_tied"), "-o", dir / "out", "--no-sync"};
      args.insert(args.end(), options.begin(), options.end());
      const Outcome outcome = run_ferry_once(args);
      EXPECT_EQ(outcome.code, 0) << outcome.err;
      EXPECT_EQ(none.count(), 0);
      fs::remove_all(dir / "out");
    }
  }
}

// One file system cannot reserve space, the other does not have enough of it.
TEST(DiskSpace, IsReservedWhereThatIsPossible) {
  const TempDir dir;
  const Args args = {"convert", fixture("llama3_tied"), "-o", dir / "b", "--dtype", "bf16"};
  {
    const Fault none("fallocate errno 0 " + std::to_string(EOPNOTSUPP));
    EXPECT_EQ(run_ferry_once(args).code, 0);
    EXPECT_GT(none.count(), 0) << "nothing is large enough to be reserved";
    fs::remove_all(dir / "b");
  }
  const Fault full("fallocate errno 1 " + std::to_string(ENOSPC));
  const Outcome outcome = run_ferry_once(args);
  EXPECT_EQ(outcome.code, 5);
  EXPECT_NE(outcome.err.find("cannot reserve"), std::string::npos) << outcome.err;
  EXPECT_TRUE(fs::is_empty(dir / "."));
}

}  // namespace
}  // namespace ferry::stage_damage_test
