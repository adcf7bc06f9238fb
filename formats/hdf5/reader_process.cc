#include "formats/hdf5/reader_process.h"

#include <fmt/format.h>
#include <spawn.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstring>
#include <string_view>

#include "formats/hdf5/description.h"
#include "formats/hdf5/walk.h"

namespace ferry::hdf5 {
namespace {

constexpr std::string_view kReaderName = "ferry-hdf5-reader";
constexpr const char* kThisProgram = "/proc/self/exe";

// Set if main() calls serve_if_asked().
std::atomic<bool> serves = false;

// The command-line arguments of the reader.
struct Task {
  uint64_t in = 0, out = 0, file_bytes = 0, memory_bytes = 0, cpu_milliseconds = 0;
  std::array<uint64_t*, 5> fields() {
    return {&in, &out, &file_bytes, &memory_bytes, &cpu_milliseconds};
  }
};

ConfinedWork work_of(int fd, uint64_t file_bytes) {
  return {prepare_walk, [fd, file_bytes] { return encode(walk(fd, file_bytes)); }};
}

struct SpawnSettings {
  posix_spawn_file_actions_t files;
  posix_spawnattr_t attributes;
  SpawnSettings() {
    ::posix_spawn_file_actions_init(&files);
    ::posix_spawnattr_init(&attributes);
  }
  SpawnSettings(const SpawnSettings&) = delete;
  SpawnSettings& operator=(const SpawnSettings&) = delete;
  ~SpawnSettings() {
    ::posix_spawn_file_actions_destroy(&files);
    ::posix_spawnattr_destroy(&attributes);
  }
};

// Returns -1 and sets errno if this program cannot be started again.
pid_t start_reader(Task task) {
  std::array<std::string, 6> texts{std::string(kReaderName)};
  const auto fields = task.fields();
  for (size_t i = 0; i < fields.size(); ++i) texts[i + 1] = fmt::format("{}", *fields[i]);
  std::array<char*, 7> arguments{};
  for (size_t i = 0; i < texts.size(); ++i) arguments[i] = texts[i].data();

  SpawnSettings settings;
  // dup2 onto the same number keeps a descriptor open in the child only.
  for (const uint64_t fd : {task.in, task.out}) {
    const int number = static_cast<int>(fd);
    ::posix_spawn_file_actions_adddup2(&settings.files, number, number);
  }
  sigset_t ignored;
  sigemptyset(&ignored);
  sigaddset(&ignored, SIGCHLD);
  ::posix_spawnattr_setsigdefault(&settings.attributes, &ignored);
  ::posix_spawnattr_setflags(&settings.attributes, POSIX_SPAWN_SETSIGDEF);
  pid_t child = -1;
  const int error = ::posix_spawn(&child, kThisProgram, &settings.files, &settings.attributes,
                                  arguments.data(), environ);
  errno = error;
  return error == 0 ? child : -1;
}

}  // namespace

void serve_if_asked(int argc, char** argv) {
  serves = true;
  // Only the arguments that start_reader() gives make this process a reader.
  Task task;
  const auto fields = task.fields();
  if (argc != static_cast<int>(fields.size()) + 1 || argv[0] != kReaderName) return;
  for (size_t i = 0; i < fields.size(); ++i) {
    const char* text = argv[i + 1];
    const char* end = text + std::strlen(text);
    const auto parsed = std::from_chars(text, end, *fields[i]);
    if (parsed.ec != std::errc() || parsed.ptr != end) return;
  }
  const ConfinedLimits limits{.memory_bytes = task.memory_bytes,
                              .cpu_milliseconds = task.cpu_milliseconds,
                              .answer_bytes = 0};
  const int in = static_cast<int>(task.in);
  run_confined(in, static_cast<int>(task.out), limits, work_of(in, task.file_bytes));
}

Result<std::string> describe_confined(const std::string& name, int fd, uint64_t file_bytes,
                                      const ConfinedLimits& limits) {
  const StartChild fork = fork_confined(fd, limits, work_of(fd, file_bytes));
  return call_confined(name, limits, [&](int out) {
    if (!serves) return fork(out);
    const pid_t child = start_reader({.in = static_cast<uint64_t>(fd),
                                      .out = static_cast<uint64_t>(out),
                                      .file_bytes = file_bytes,
                                      .memory_bytes = limits.memory_bytes,
                                      .cpu_milliseconds = limits.cpu_milliseconds});
    return child < 0 ? fork(out) : child;
  });
}

}  // namespace ferry::hdf5
