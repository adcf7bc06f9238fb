// The values of tensors in the type in which a kernel computes, for kernels that visit values in no
// simple order.
#pragma once

#include <vector>

#include "kernels/dtypes.h"
#include "kernels/tensor.h"

namespace ferry::kernels {

// The values of an input as C: the tensor's own memory where it stores C, or else a copy.
template <class C>
class InputValues {
 public:
  explicit InputValues(const Tensor& tensor) : data_(tensor.as<C>()) {
    if (stored_as<C>(tensor.dtype)) return;
    copy_.resize(static_cast<size_t>(tensor.numel));
    load(tensor.dtype, tensor.data, copy_.data(), tensor.numel);
    data_ = copy_.data();
  }
  const C* data() const { return data_; }
  C operator[](int64_t i) const { return data_[i]; }

 private:
  const C* data_;
  std::vector<C> copy_;
};

// Memory for the values of an output as C. finish() stores them in the tensor's dtype.
template <class C>
class OutputValues {
 public:
  explicit OutputValues(Tensor& tensor) : tensor_(tensor), data_(tensor.as<C>()) {
    if (stored_as<C>(tensor.dtype)) return;
    copy_.resize(static_cast<size_t>(tensor.numel));
    data_ = copy_.data();
  }
  C* data() { return data_; }
  C& operator[](int64_t i) { return data_[i]; }
  void finish() {
    if (!copy_.empty()) store(tensor_.dtype, copy_.data(), tensor_.data, tensor_.numel);
  }

 private:
  Tensor& tensor_;
  C* data_;
  std::vector<C> copy_;
};

}  // namespace ferry::kernels
