// Replaces the library's operator new by one that counts.
#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <new>

#include "tests/decoding/counting_new.h"

namespace ferry {
namespace {

std::atomic<uint64_t> count{0};

void* allocate(size_t bytes, size_t alignment) {
  count.fetch_add(1, std::memory_order_relaxed);
  void* memory = nullptr;
  if (posix_memalign(&memory, alignment, bytes) != 0) throw std::bad_alloc();
  return memory;
}

}  // namespace

uint64_t allocations() { return count.load(std::memory_order_relaxed); }

}  // namespace ferry

void* operator new(size_t bytes) { return ferry::allocate(bytes, alignof(std::max_align_t)); }
void* operator new(size_t bytes, std::align_val_t alignment) {
  return ferry::allocate(bytes, static_cast<size_t>(alignment));
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, size_t, std::align_val_t) noexcept { std::free(memory); }
