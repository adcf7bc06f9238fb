// Planned memory: what a program states that its methods need, allocated before they execute.
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

namespace ferry::runner {

// The bytes that the system has available: free memory of the machine, and what the limits of the
// process's control groups leave.
uint64_t available_bytes();

// How many bytes of planned memory programs may have together.
class MemoryBudget {
 public:
  // `bytes`, or without a value available_bytes().
  explicit MemoryBudget(std::optional<uint64_t> bytes) : bytes_(bytes), chosen_(bytes) {}

  // kIo, with the numbers, once more than the budget has been taken.
  Status take(uint64_t bytes);

 private:
  std::optional<uint64_t> bytes_;  // asked of the system when it is first needed
  bool chosen_;
  uint64_t taken_ = 0;
};

// Bytes that a control group and its parents leave to the process; nullopt without a limit.
// `membership` is the text of /proc/self/cgroup, `root` the folder where control groups are
// mounted.
std::optional<uint64_t> control_group_bytes(const std::string& membership, const std::string& root);

// Anonymous pages: what a program never touches costs nothing. Move-only. Starts at a page
// boundary, filled with zeros.
class Arena {
 public:
  Arena() = default;
  ~Arena();
  Arena(Arena&& other) noexcept { swap(other); }
  Arena& operator=(Arena&& other) noexcept {
    swap(other);
    return *this;
  }

  // kIo when the budget or the system has no such memory.
  static Result<Arena> allocate(uint64_t bytes, MemoryBudget& budget);

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

// Contents that a reset restores.
struct InitialContents {
  size_t arena;
  uint64_t offset;
  std::span<const std::byte> bytes;
};

class DelegateMemory;

// The memory that all methods of one program share.
struct ProgramMemory {
  std::vector<Arena> arenas;  // [m] is memory id m
  std::vector<InitialContents> initial;
  std::shared_ptr<DelegateMemory> delegates;

  // A copy of a constant that is not aligned in its file, the same one for all methods.
  std::span<const std::byte> aligned_copy(std::span<const std::byte> bytes);
  // A copy that may be changed.
  std::span<std::byte> own_copy(std::span<const std::byte> bytes);
  // The values of `dtype`, a floating-point one, in f64.
  std::span<const std::byte> f64_copy(std::span<const std::byte> bytes, DType dtype);
  // Brings all arenas to their contents before the first execution.
  void fill(bool poison);

 private:
  std::map<std::pair<const std::byte*, size_t>, std::vector<std::byte>> copies_;
  std::deque<std::vector<std::byte>> own_;
  std::map<std::pair<const std::byte*, size_t>, std::vector<double>> f64_;
};

}  // namespace ferry::runner
