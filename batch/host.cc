#include "batch/host.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <charconv>
#include <ctime>
#include <optional>
#include <string_view>

#include "core/file.h"

namespace ferry::batch {
namespace {

// Reads a file in /proc or /sys, whose size stat() reports as 0. Returns an empty text if there is
// no such file.
std::string read_kernel_file(const std::string& path) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd.is_open()) return {};
  std::array<char, 4096> buffer;
  const ssize_t got = ::read(fd.get(), buffer.data(), buffer.size());
  return got > 0 ? std::string(buffer.data(), static_cast<size_t>(got)) : std::string();
}

std::string_view first_line(std::string_view text) { return text.substr(0, text.find('\n')); }

std::string host_name() {
  std::array<char, 256> buffer = {};
  ::gethostname(buffer.data(), buffer.size() - 1);
  std::string name(buffer.data());
  for (char& c : name) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    if (!plain && c != '.' && c != '_') c = '-';
  }
  return name.empty() ? "unknown" : name;
}

std::string boot_name() {
  const std::string boot = read_kernel_file("/proc/sys/kernel/random/boot_id");
  struct stat space = {};
  ::stat("/proc/self/ns/pid", &space);
  return fmt::format("{}/{}", first_line(boot), space.st_ino);
}

// Reads field 22 of /proc/ID/stat, the start time. Field 2, the name of the program, may contain
// blanks and brackets.
std::optional<uint64_t> start_of(int64_t id) {
  const std::string text = read_kernel_file(fmt::format("/proc/{}/stat", id));
  std::string_view rest = text;
  const size_t bracket = rest.rfind(')');
  if (bracket == std::string_view::npos) return std::nullopt;
  rest.remove_prefix(bracket + 1);
  constexpr int kFieldsBefore = 20;
  for (int i = 0; i < kFieldsBefore; ++i) {
    const size_t blank = rest.find(' ');
    if (blank == std::string_view::npos) return std::nullopt;
    rest.remove_prefix(blank + 1);
  }
  uint64_t start = 0;
  const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), start);
  if (error != std::errc()) return std::nullopt;
  return start;
}

}  // namespace

const Process& this_process() {
  static const Process process{.host = host_name(),
                               .boot = boot_name(),
                               .id = ::getpid(),
                               .start = start_of(::getpid()).value_or(0)};
  return process;
}

Life life_of(const Process& process) {
  const Process& here = this_process();
  if (process.host != here.host || process.boot != here.boot) return Life::kUnknown;
  return start_of(process.id) == process.start ? Life::kAlive : Life::kDead;
}

std::string utc_now() {
  const std::time_t now = std::time(nullptr);
  std::tm parts = {};
  ::gmtime_r(&now, &parts);
  std::array<char, 32> text;
  const size_t size = std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", &parts);
  return {text.data(), size};
}

std::string random_name() {
  uint64_t number = 0;
  while (::getrandom(&number, sizeof number, 0) != sizeof number) continue;
  return fmt::format("{:016x}", number);
}

uint64_t out_of_memory_kills() {
  // The line "0::/system.slice/x" names the group in the unified hierarchy (cgroup v2).
  const std::string groups = read_kernel_file("/proc/self/cgroup");
  const size_t own = groups.find("0::");
  if (own == std::string::npos) return 0;
  const std::string_view group = first_line(std::string_view(groups).substr(own + 3));
  const std::string events = read_kernel_file(fmt::format("/sys/fs/cgroup{}/memory.events", group));
  constexpr std::string_view kName = "oom_kill ";
  const size_t at = events.find(kName);
  uint64_t kills = 0;
  if (at != std::string::npos) {
    std::from_chars(events.data() + at + kName.size(), events.data() + events.size(), kills);
  }
  return kills;
}

}  // namespace ferry::batch
