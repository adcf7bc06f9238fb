// The child of the HDF5 reader is confined: each test tries something that it must not do.

#include "formats/hdf5/confined.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <functional>
#include <thread>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "core/file.h"

namespace ferry::hdf5::confined_test {
namespace {

constexpr ConfinedLimits kLimits = {
    .memory_bytes = uint64_t{64} << 20, .cpu_milliseconds = 300, .answer_bytes = 1 << 20};

Result<std::string> confined(const std::function<std::string()>& work, int fd = -1) {
  return call_confined("f", kLimits, fork_confined(fd, kLimits, {[] {}, work}));
}

std::string outcome(long result) { return result < 0 ? fmt::format("errno {}", errno) : "done"; }

TEST(Hdf5Confined, TheAnswerComesBack) {
  const std::string text(100'000, 'x');
  EXPECT_EQ(confined([&] { return text; }).value(), text);
}

TEST(Hdf5Confined, TheFileCanBeReadAndNothingElse) {
  const InputFile file = InputFile::open(FERRY_TESTDATA "/hostile/hdf5/h5_valid.h5").value();
  const InputFile other = InputFile::open(FERRY_TESTDATA "/README.md").value();
  const InputFile::Descriptor file_descriptor = file.descriptor().value();
  const InputFile::Descriptor other_descriptor = other.descriptor().value();
  const std::string denied = fmt::format("errno {}", EPERM);
  char byte = 0;
  const std::pair<std::string, std::function<std::string()>> cases[] = {
      {"done", [&] { return outcome(::pread(file_descriptor.fd(), &byte, 1, 1)); }},
      {denied, [&] { return outcome(::pread(other_descriptor.fd(), &byte, 1, 1)); }},
      {denied, [&] { return outcome(::open("/etc/passwd", O_RDONLY)); }},
      {denied,
       [&] {
         return outcome(
             ::mmap(nullptr, 1, PROT_READ, MAP_SHARED, other_descriptor.fd(), 0) == MAP_FAILED ? -1
                                                                                               : 0);
       }},
      {denied, [&] { return outcome(::unlink("/tmp/ferry_confined")); }},
      {denied, [&] { return outcome(::socket(AF_UNIX, SOCK_STREAM, 0)); }},
      {denied, [&] { return outcome(::execl("/bin/true", "true", nullptr)); }},
      {denied, [&] { return outcome(::fork()); }},
      {denied, [&] { return outcome(::kill(::getppid(), SIGTERM)); }},
      {denied, [&] { return outcome(::ftruncate(file_descriptor.fd(), 0)); }},
      {denied, [&] { return outcome(::dup(file_descriptor.fd())); }},
  };
  for (const auto& [expected, work] : cases) {
    EXPECT_EQ(confined(work, file_descriptor.fd()).value(), expected) << &work - &cases[0].second;
  }
}

TEST(Hdf5Confined, ACrashIsAnError) {
  const auto crashed = confined([]() -> std::string {
    ::signal(SIGSEGV, SIG_DFL);
    int* volatile nowhere = reinterpret_cast<int*>(64);
    return std::to_string(*nowhere);
  });
  ASSERT_FALSE(crashed);
  EXPECT_EQ(crashed.error().code, ErrorCode::kBadInput);
  EXPECT_EQ(crashed.error().message, "f: the HDF5 library crashed on the file (signal 11)");
  const auto threw = confined([]() -> std::string { throw 1; });
  EXPECT_EQ(threw.error().message, "f: the HDF5 library failed on the file");
}

TEST(Hdf5Confined, AnAnswerWithoutEndIsAnError) {
  const auto longer = confined([] { return std::string((1 << 20) + 1, 'x'); });
  EXPECT_EQ(longer.error().message, "f: its description has more than 1048576 bytes");
}

#ifndef __has_feature
#define __has_feature(x) 0
#endif
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) && \
    !__has_feature(address_sanitizer) && !__has_feature(thread_sanitizer)
TEST(Hdf5Confined, TimeAndMemoryAreLimited) {
  const auto slow = confined([]() -> std::string {
    for (std::atomic<uint64_t> i = 0;; ++i) {
    }
  });
  EXPECT_EQ(slow.error().message, "f: the HDF5 library took more than 300 ms to walk the file");
  const auto large = confined([] { return std::string(size_t{200} << 20, 'x'); });
  EXPECT_EQ(large.error().message, "f: the HDF5 library needs more than 67108864 bytes of memory");
}
#endif

// Daemons, or `trap '' CHLD`, make the system forget children, so that waiting fails.
TEST(Hdf5Confined, ChildrenMayBeIgnored) {
  struct Ignored {
    Ignored() { ::signal(SIGCHLD, SIG_IGN); }
    ~Ignored() { ::signal(SIGCHLD, SIG_DFL); }
  } ignored;
  EXPECT_EQ(confined([] { return std::string("answer"); }).value_or("failed"), "answer");
  const auto threw = confined([]() -> std::string { throw 1; });
  ASSERT_FALSE(threw);
  EXPECT_EQ(threw.error().message, "f: the HDF5 library failed on the file");
  EXPECT_EQ(threw.error().code, ErrorCode::kBadInput);
  EXPECT_TRUE(checkpoint::open_tensors(FERRY_TESTDATA "/hostile/hdf5/h5_valid.h5"));
}

// A fork of a program with threads could wait for ever for a lock that another thread held.
TEST(Hdf5Confined, FilesAreReadWithoutAFork) {
  static std::atomic<int> forks = 0;
  ASSERT_EQ(::pthread_atfork([] { ++forks; }, nullptr, nullptr), 0);
  EXPECT_TRUE(checkpoint::open_tensors(FERRY_TESTDATA "/hostile/hdf5/h5_valid.h5"));
  EXPECT_EQ(forks, 0);
  EXPECT_TRUE(confined([] { return std::string(); }));
  EXPECT_EQ(forks, 1);
}

TEST(Hdf5Confined, SeveralThreadsMayCall) {
  std::vector<std::thread> threads;
  std::vector<std::string> answers(8);
  for (size_t i = 0; i < answers.size(); ++i) {
    threads.emplace_back([&answers, i] {
      answers[i] = confined([i] { return std::to_string(i); }).value_or("failed");
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (size_t i = 0; i < answers.size(); ++i) EXPECT_EQ(answers[i], std::to_string(i));
}

}  // namespace
}  // namespace ferry::hdf5::confined_test
