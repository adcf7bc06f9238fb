#include "runner/memory.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <limits>
#include <string>

#include "core/text.h"

namespace ferry::runner {
namespace {

// As the kernel estimates it; all of the machine's where it does not say.
uint64_t available_bytes() {
  std::ifstream info("/proc/meminfo");
  std::string name;
  uint64_t kilobytes = 0;
  while (info >> name >> kilobytes) {
    if (name == "MemAvailable:") return std::min(Arena::limit(), kilobytes * 1024);
    info.ignore(std::numeric_limits<std::streamsize>::max(), '\n');
  }
  return Arena::limit();
}

}  // namespace

Result<Arena> Arena::allocate(uint64_t bytes) {
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

uint64_t Arena::limit() {
  return static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES)) *
         static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
}

Status Arena::check_available(uint64_t bytes) {
  constexpr uint64_t kNotWorthAsking = uint64_t{64} << 20;
  if (bytes <= kNotWorthAsking) return {};
  const uint64_t available = available_bytes();
  if (bytes <= available) return {};
  return fail(ErrorCode::kIo, fmt::format("plans {} of memory, of which {} are available",
                                          human_bytes(bytes), human_bytes(available)));
}

void Arena::refill(bool poison) {
  if (data_ == nullptr) return;
  // Private anonymous pages that are given back read as zero.
  if (madvise(data_, size_, MADV_DONTNEED) != 0) std::memset(data_, 0, size_);
  if (poison) std::memset(data_, 0xff, size_);
}

}  // namespace ferry::runner
