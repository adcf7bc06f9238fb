// Planned memory is the memory that a program states for its methods. It is allocated before they
// execute.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/dtype.h"
#include "core/result.h"
#include "kernels/tensor.h"

namespace ferry::runner {

// Returns the bytes that the system has available, limited by the control groups of the process.
uint64_t available_bytes();

// Limits the bytes of planned memory of all programs together.
class MemoryBudget {
 public:
  // The budget is `bytes`, or available_bytes() by default.
  explicit MemoryBudget(std::optional<uint64_t> bytes) : bytes_(bytes), chosen_(bytes) {}

  // kIo, with the numbers, if more than the budget is taken in all.
  Status take(uint64_t bytes);

 private:
  std::optional<uint64_t> bytes_;  // read from the system when first needed
  bool chosen_;
  uint64_t taken_ = 0;
};

// Returns the bytes that a control group and its parents leave to the process, or nullopt without a
// limit. `membership` is the text of /proc/self/cgroup, `root` the folder where control groups are
// mounted.
std::optional<uint64_t> control_group_bytes(const std::string& membership, const std::string& root);

// An Arena holds anonymous pages, so memory that a program never touches costs nothing. It is
// move-only, begins at a page boundary, and is filled with zeros.
class Arena {
 public:
  Arena() = default;
  ~Arena();
  Arena(Arena&& other) noexcept { swap(other); }
  Arena& operator=(Arena&& other) noexcept {
    swap(other);
    return *this;
  }

  // kIo if the budget or the system does not have the memory.
  // The program never touches `untouched` bytes, which are not taken from the budget.
  static Result<Arena> allocate(uint64_t bytes, MemoryBudget& budget, uint64_t untouched = 0);

  std::byte* data() const { return data_; }
  uint64_t size() const { return size_; }
  // Sets every byte to zero, or with `poison` to 0xff.
  void refill(bool poison);

 private:
  void swap(Arena& other) {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
  }
  std::byte* data_ = nullptr;
  uint64_t size_ = 0;
};

// The contents that a reset restores.
struct InitialContents {
  size_t arena;
  uint64_t offset;
  std::span<const std::byte> bytes;
};

class DelegateMemory;

// A cache that is held as codes (kernels/cache_codes.h), in place of a buffer.
struct CodedCache {
  Arena arena;
  int bits = 0;
  kernels::Dims sizes;  // of the buffer
  uint64_t buffer_bytes = 0;
};

// The memory that all methods of one program share.
struct ProgramMemory {
  std::vector<Arena> arenas;                     // [m] is the memory with id m
  std::map<const std::byte*, CodedCache> coded;  // by the memory of the buffer
  std::vector<InitialContents> initial;
  std::shared_ptr<DelegateMemory> delegates;

  // Returns a copy of a constant that is not aligned in its file. All methods get one copy.
  std::span<const std::byte> aligned_copy(std::span<const std::byte> bytes);
  // Returns a copy that may be changed.
  std::span<std::byte> own_copy(std::span<const std::byte> bytes);
  // Returns the values of `dtype`, a floating-point dtype, in f64.
  std::span<const std::byte> f64_copy(std::span<const std::byte> bytes, DType dtype);
  // Sets all arenas to their contents before the first execution.
  void fill(bool poison);

 private:
  std::map<std::pair<const std::byte*, size_t>, std::vector<std::byte>> copies_;
  std::deque<std::vector<std::byte>> own_;
  std::map<std::pair<const std::byte*, size_t>, std::vector<double>> f64_;
};

}  // namespace ferry::runner
