// Tensor is a tensor at run time. It is row-major and contiguous; strides follow from the sizes.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>

#include "core/dtype.h"

namespace ferry::kernels {

inline constexpr int kMaxRank = 16;

// Dims holds at most kMaxRank sizes, strides or dimension numbers, without an allocation.
class Dims {
 public:
  Dims() = default;
  Dims(std::initializer_list<int64_t> values) : Dims(std::span(values.begin(), values.size())) {}
  // `values` has at most kMaxRank entries, which the caller has checked.
  explicit Dims(std::span<const int64_t> values) : rank_(static_cast<int>(values.size())) {
    std::copy(values.begin(), values.end(), values_.begin());
  }
  static Dims filled(int rank, int64_t value) {
    Dims dims;
    dims.rank_ = rank;
    std::fill_n(dims.values_.begin(), rank, value);
    return dims;
  }

  int rank() const { return rank_; }
  bool empty() const { return rank_ == 0; }
  int64_t& operator[](int i) { return values_[static_cast<size_t>(i)]; }
  int64_t operator[](int i) const { return values_[static_cast<size_t>(i)]; }
  int64_t back() const { return values_[static_cast<size_t>(rank_ - 1)]; }
  const int64_t* begin() const { return values_.data(); }
  const int64_t* end() const { return values_.data() + rank_; }
  std::span<const int64_t> span() const { return {begin(), end()}; }
  // The caller knows that rank() < kMaxRank.
  void push_back(int64_t value) { values_[static_cast<size_t>(rank_++)] = value; }
  void pop_back() { --rank_; }
  void insert(int at, int64_t value) {
    push_back(0);
    std::copy_backward(begin() + at, end() - 1, values_.begin() + rank_);
    values_[static_cast<size_t>(at)] = value;
  }
  void erase(int at) {
    std::copy(begin() + at + 1, end(), values_.begin() + at);
    --rank_;
  }
  bool operator==(const Dims& other) const {
    return std::equal(begin(), end(), other.begin(), other.end());
  }

 private:
  int rank_ = 0;
  std::array<int64_t, kMaxRank> values_ = {};
};

// Returns the product of sizes that are known to describe existing memory.
inline int64_t numel(std::span<const int64_t> sizes) {
  int64_t n = 1;
  for (int64_t size : sizes) n *= size;
  return n;
}

// Returns row-major strides in elements.
inline Dims contiguous_strides(const Dims& sizes) {
  Dims strides = Dims::filled(sizes.rank(), 1);
  for (int i = sizes.rank() - 2; i >= 0; --i) strides[i] = strides[i + 1] * sizes[i + 1];
  return strides;
}

// The owner of `data` is the Method's arenas, the program or data file, or the caller (inputs).
// Between two steps of decoding the weights displace everything from the caches, so a step reads
// its tensors from memory. All but the sizes beyond the third are in one cache line.
struct alignas(64) Tensor {
  int32_t id = -1;  // index into the method's values, for messages
  DType dtype = DType::kF32;
  bool dynamic = false;   // sizes may change, within `capacity`
  bool writable = false;  // false for constants and for inputs that share the caller's memory
  bool widened = false;   // f32 in place of the program's half precision
  int64_t numel = 1;
  std::byte* data = nullptr;  // aligned to the element; null until a view or an input is set
  uint64_t capacity = 0;      // in bytes
  Dims sizes;

  int rank() const { return sizes.rank(); }
  int64_t size(int dim) const { return sizes[dim]; }
  int64_t element_bytes() const { return dtype_bytes(dtype); }
  int64_t bytes() const { return numel * element_bytes(); }
  template <class T>
  const T* as() const {
    return reinterpret_cast<const T*>(data);
  }
  template <class T>
  T* as() {
    return reinterpret_cast<T*>(data);
  }
};

}  // namespace ferry::kernels
