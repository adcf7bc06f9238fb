// StepUses: who writes and who reads the values of a method, for what leaves out steps of it. Not a
// public header.
#pragma once

#include <string_view>
#include <vector>

#include "runner/method_loading.h"

namespace ferry::runner {

class StepUses {
 public:
  explicit StepUses(const Loading& loading);

  const std::vector<size_t>& writers(const kernels::Value* value) const {
    return writers_[id(value)];
  }
  const std::vector<size_t>& readers(const kernels::Value* value) const {
    return readers_[id(value)];
  }
  // Whether the step calls that operator.
  bool is(size_t step, std::string_view name) const;
  // Never written, no input and no output.
  bool is_constant(const kernels::Value* value) const {
    return writers(value).empty() && !ports_[id(value)];
  }
  bool are_constant(const Step& step, size_t begin, size_t end) const;
  // Written by one step, no input and no output.
  bool is_inner(const kernels::Value* value) const {
    return writers(value).size() == 1 && !ports_[id(value)];
  }
  // Whether some view is written, which may be memory of anything.
  bool written_through_views(const Loading& loading) const;
  // Whether the steps [first, last] always follow each other, and no value is moved from `from` on.
  bool in_one_go(size_t first, size_t from, size_t last) const;
  // Whether a step of [begin, end) writes to that memory.
  bool writes(size_t begin, size_t end, const kernels::Tensor& memory) const;

 private:
  static size_t id(const kernels::Value* value) { return static_cast<size_t>(value->id); }

  const MethodState& state_;
  std::vector<std::vector<size_t>> writers_, readers_;  // per value: steps
  std::vector<bool> ports_;                             // per value
  std::vector<size_t> jumps_;
};

}  // namespace ferry::runner
