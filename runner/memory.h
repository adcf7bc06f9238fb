// Arena: planned memory. Anonymous pages, so that what a program never touches costs nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "core/result.h"

namespace ferry::runner {

// Move-only. Starts at a page boundary; zero-filled.
class Arena {
 public:
  Arena() = default;
  ~Arena();
  Arena(Arena&& other) noexcept { swap(other); }
  Arena& operator=(Arena&& other) noexcept {
    swap(other);
    return *this;
  }

  // kIo when the system has no such memory.
  static Result<Arena> allocate(uint64_t bytes);
  // Most that one method may plan: the machine's memory.
  static uint64_t limit();
  // kIo where less than `bytes` is free now or can be freed. Planned pages are not reserved: a
  // program that used more than there is would have the system end a process.
  static Status check_available(uint64_t bytes);

  std::byte* data() const { return data_; }
  uint64_t size() const { return size_; }
  // Every byte zero again, or 0xff.
  void refill(bool poison);

 private:
  void swap(Arena& other) {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
  }
  std::byte* data_ = nullptr;
  uint64_t size_ = 0;
};

}  // namespace ferry::runner
