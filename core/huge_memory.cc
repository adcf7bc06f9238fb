#include "core/huge_memory.h"

#include <sys/mman.h>

#include <cerrno>
#include <limits>

namespace ferry {
namespace {

constexpr size_t kHugePage = size_t{1} << 21, kSmallPage = size_t{1} << 12;

// mmap(nullptr, ...) at an address that is a multiple of kHugePage: at others no huge page begins.
void* map_aligned(size_t bytes, int protection, int flags, int fd) {
  if (bytes < kHugePage) return ::mmap(nullptr, bytes, protection, flags, fd, 0);
  const size_t reserved = bytes + kHugePage;
  void* const memory =
      ::mmap(nullptr, reserved, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return MAP_FAILED;
  auto* const begin = static_cast<std::byte*>(memory);
  const size_t before = (kHugePage - reinterpret_cast<uintptr_t>(memory) % kHugePage) % kHugePage;
  void* const at = ::mmap(begin + before, bytes, protection, flags | MAP_FIXED, fd, 0);
  if (at == MAP_FAILED) {
    const int problem = errno;
    ::munmap(memory, reserved);
    errno = problem;
    return MAP_FAILED;
  }
  const size_t end = before + (bytes + kSmallPage - 1) / kSmallPage * kSmallPage;
  if (before > 0) ::munmap(begin, before);
  if (end < reserved) ::munmap(begin + end, reserved - end);
  (void)::madvise(at, bytes, MADV_HUGEPAGE);  // a system without huge pages returns an error
  return at;
}

}  // namespace

std::shared_ptr<HugeMemory> HugeMemory::allocate(uint64_t bytes) {
  void* at = nullptr;
  if (bytes > std::numeric_limits<size_t>::max() - kHugePage) {
    errno = ENOMEM;
    return nullptr;
  }
  if (bytes > 0) {
    at = map_aligned(bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1);
    if (at == MAP_FAILED) return nullptr;
  }
  return std::shared_ptr<HugeMemory>(new HugeMemory({static_cast<std::byte*>(at), bytes}));
}

HugeMemory::~HugeMemory() {
  if (!bytes_.empty()) ::munmap(bytes_.data(), bytes_.size());
}

void* map_file(int fd, size_t bytes) { return map_aligned(bytes, PROT_READ, MAP_PRIVATE, fd); }

}  // namespace ferry
