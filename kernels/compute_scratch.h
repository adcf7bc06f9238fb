// Scratch: memory for the intermediate results of a kernel. Each thread keeps what it has used for
// the next kernel, so that decoding allocates nothing.
#pragma once

#include <cstddef>

namespace ferry::kernels {

// `count` values that nothing else on this thread uses while the object lives; uninitialised,
// aligned for every vector. Null for 0 values.
class Scratch {
 public:
  explicit Scratch(size_t count);
  ~Scratch();
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  float* data() const { return data_; }

 private:
  float* data_;
  size_t capacity_;
};

}  // namespace ferry::kernels
