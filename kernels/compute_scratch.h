// Scratch is memory for the intermediate results of a kernel. Each thread keeps freed memory for
// the next kernel, so that decoding allocates nothing.
#pragma once

#include <cstddef>

namespace ferry::kernels {

// Holds `count` uninitialised values for exclusive use while the object lives. The memory is
// aligned for every vector. It is null for 0 values.
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
