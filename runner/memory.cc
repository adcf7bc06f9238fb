#include "runner/memory.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <fstream>
#include <limits>
#include <sstream>
#include <string_view>

#include "core/checked.h"

namespace ferry::runner {
namespace {

// For less planned memory the limits of the system are not read.
constexpr uint64_t kAlwaysGranted = uint64_t{64} << 20;

// Returns the number in a file of one number, or nullopt if there is none, as for "max".
std::optional<uint64_t> number_in(const std::string& path) {
  std::ifstream file(path);
  uint64_t number = 0;
  if (!(file >> number)) return std::nullopt;
  return number;
}

// Returns the value of the line "NAME value" or "NAME: value kB" of a file.
std::optional<uint64_t> field_in(const std::string& path, std::string_view name) {
  std::ifstream file(path);
  std::string word;
  uint64_t value = 0;
  while (file >> word >> value) {
    if (word == name) return value;
    file.ignore(std::numeric_limits<std::streamsize>::max(), '\n');
  }
  return std::nullopt;
}

struct GroupFiles {
  const char *limit, *usage, *cache;
};

// Returns the bytes that one group leaves. Its usage includes cached files, which the kernel drops
// when it must.
std::optional<uint64_t> left_in_group(const std::string& folder, const GroupFiles& names) {
  const std::optional<uint64_t> limit = number_in(folder + "/" + names.limit);
  if (!limit) return std::nullopt;
  const uint64_t usage = number_in(folder + "/" + names.usage).value_or(0);
  const uint64_t cache = field_in(folder + "/memory.stat", names.cache).value_or(0);
  const uint64_t used = usage - std::min(usage, cache);
  return *limit - std::min(*limit, used);
}

uint64_t machine_bytes() {
  return static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES)) *
         static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
}

std::string text_of(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

}  // namespace

uint64_t available_bytes() {
  const uint64_t kilobytes =
      field_in("/proc/meminfo", "MemAvailable:").value_or(machine_bytes() / 1024);
  const std::optional<uint64_t> group =
      control_group_bytes(text_of("/proc/self/cgroup"), "/sys/fs/cgroup");
  return std::min(kilobytes * 1024, group.value_or(UINT64_MAX));
}

std::optional<uint64_t> control_group_bytes(const std::string& membership,
                                            const std::string& root) {
  constexpr GroupFiles kVersion2 = {"memory.max", "memory.current", "file"};
  constexpr GroupFiles kVersion1 = {"memory.limit_in_bytes", "memory.usage_in_bytes",
                                    "total_cache"};
  std::optional<uint64_t> least;
  std::istringstream lines(membership);
  for (std::string line; std::getline(lines, line);) {
    // Lines have the form "hierarchy:controllers:/path". Version 2 is hierarchy 0 and names no
    // controllers.
    const size_t first = line.find(':');
    const size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = fmt::format(",{},", line.substr(first + 1, second - first - 1));
    const bool version2 = controllers == ",,";
    if (!version2 && controllers.find(",memory,") == std::string::npos) continue;
    const std::string top = version2 ? root : root + "/memory";
    // The limits of all parents apply. In a container the path may not exist below `root`.
    for (std::string path = line.substr(second + 1);; path.resize(path.rfind('/'))) {
      while (path.ends_with('/')) path.pop_back();
      const auto left = left_in_group(top + path, version2 ? kVersion2 : kVersion1);
      if (left) least = std::min(least.value_or(UINT64_MAX), *left);
      if (path.rfind('/') == std::string::npos) break;
    }
  }
  return least;
}

Status MemoryBudget::take(uint64_t bytes) {
  const std::optional<uint64_t> sum = checked_add(taken_, bytes);
  taken_ = sum.value_or(UINT64_MAX);
  if (!bytes_ && taken_ <= kAlwaysGranted) return {};
  if (!bytes_) bytes_ = available_bytes();
  if (taken_ <= *bytes_) return {};
  std::string text =
      fmt::format("planned memory of {} bytes exceeds the {} bytes that {}", taken_, *bytes_,
                  chosen_ ? "memory allows" : "are available (memory sets the limit)");
  return Failure(Error{.code = ErrorCode::kIo, .message = std::move(text), .field = "memory"});
}

Result<Arena> Arena::allocate(uint64_t bytes, MemoryBudget& budget, uint64_t untouched) {
  FERRY_RETURN_IF_ERROR(budget.take(bytes - std::min(bytes, untouched)));
  Arena arena;
  if (bytes == 0) return arena;
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) {
    return fail(ErrorCode::kIo, fmt::format("cannot allocate {} bytes of planned memory", bytes));
  }
  arena.data_ = static_cast<std::byte*>(memory);
  arena.size_ = bytes;
  return arena;
}

Arena::~Arena() {
  if (data_ != nullptr) munmap(data_, size_);
}

void Arena::refill(bool poison) {
  if (data_ == nullptr) return;
  // Private anonymous pages read as zero after MADV_DONTNEED.
  if (madvise(data_, size_, MADV_DONTNEED) != 0) std::memset(data_, 0, size_);
  if (poison) std::memset(data_, 0xff, size_);
}

std::span<const std::byte> ProgramMemory::aligned_copy(std::span<const std::byte> bytes) {
  std::vector<std::byte>& copy = copies_[{bytes.data(), bytes.size()}];
  if (copy.empty()) copy.assign(bytes.begin(), bytes.end());
  return copy;
}

std::span<std::byte> ProgramMemory::own_copy(std::span<const std::byte> bytes) {
  return own_.emplace_back(bytes.begin(), bytes.end());
}

std::span<const std::byte> ProgramMemory::f64_copy(std::span<const std::byte> bytes, DType dtype) {
  std::vector<double>& copy = f64_[{bytes.data(), bytes.size()}];
  if (copy.empty()) {
    std::vector<float> values(bytes.size() / static_cast<size_t>(dtype_bytes(dtype)));
    to_f32(dtype, bytes.data(), values.data(), values.size());
    copy.assign(values.begin(), values.end());
  }
  return std::as_bytes(std::span(copy));
}

void ProgramMemory::fill(bool poison) {
  for (Arena& arena : arenas) arena.refill(poison);
  for (auto& [buffer, cache] : coded) cache.arena.refill(poison);
  for (const InitialContents& contents : initial) {
    std::byte* const to = arenas[contents.arena].data() + contents.offset;
    if (coded.contains(to)) continue;  // positions are written before they are read
    std::memcpy(to, contents.bytes.data(), contents.bytes.size());
  }
}

}  // namespace ferry::runner
