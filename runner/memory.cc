#include "runner/memory.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>

namespace ferry::runtime {

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

void Arena::refill(bool poison) {
  if (data_ == nullptr) return;
  // Private anonymous pages that are given back read as zero.
  if (madvise(data_, size_, MADV_DONTNEED) != 0) std::memset(data_, 0, size_);
  if (poison) std::memset(data_, 0xff, size_);
}

}  // namespace ferry::runtime
