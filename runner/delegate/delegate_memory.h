// DelegateMemory: what the delegates of one program share, whatever method they are called from:
// what products need to know of weights beforehand, and scratch memory.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>

#include "core/result.h"
#include "core/thread_pool.h"
#include "kernels/quantized_linear.h"
#include "runner/memory.h"

namespace ferry::runner {

class DelegateMemory {
 public:
  explicit DelegateMemory(bool poison) : poison_(poison) {}

  // The matrix packed, once for the same bytes and coding. Its memory counts as planned memory.
  // Valid as long as this object and the bytes.
  Result<const kernels::PackedMatrix*> packed(const kernels::CodedMatrix& matrix,
                                              MemoryBudget& budget);

  // At least `bytes` bytes of scratch memory, aligned to 64. A larger request moves it; nothing in
  // it outlasts one execution of a delegate.
  Status reserve(uint64_t bytes, MemoryBudget& budget);
  std::byte* scratch() const { return scratch_.data(); }

 private:
  struct Key {
    const std::byte *codes, *scales;
    int64_t rows, columns, group;
    int bits;
    DType scale_dtype;
    auto operator<=>(const Key&) const = default;
  };

  bool poison_;
  std::map<Key, kernels::PackedMatrix> packed_;
  Arena scratch_;
};

}  // namespace ferry::runner
