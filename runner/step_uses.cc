#include "runner/step_uses.h"

#include <algorithm>

namespace ferry::runner {

using kernels::Tensor;

StepUses::StepUses(const Loading& loading)
    : state_(loading.state),
      writers_(state_.values.size()),
      readers_(state_.values.size()),
      ports_(state_.values.size()) {
  for (size_t i = 0; i < state_.steps.size(); ++i) {
    for (int32_t v : state_.written[i]) writers_[static_cast<size_t>(v)].push_back(i);
    for (int32_t v : loading.reads[i]) readers_[static_cast<size_t>(v)].push_back(i);
    if (state_.steps[i].kind == Step::Kind::kJumpIfFalse) jumps_.push_back(i);
  }
  for (int32_t v : state_.inputs) ports_[static_cast<size_t>(v)] = true;
  for (int32_t v : state_.outputs) ports_[static_cast<size_t>(v)] = true;
}

bool StepUses::is(size_t step, std::string_view name) const {
  return state_.steps[step].kind == Step::Kind::kKernel && state_.steps[step].kernel->name == name;
}

bool StepUses::are_constant(const Step& step, size_t begin, size_t end) const {
  for (size_t i = begin; i < end; ++i) {
    if (!is_constant(step.args[i])) return false;
  }
  return true;
}

bool StepUses::written_through_views(const Loading& loading) const {
  for (size_t i = 0; i < state_.steps.size(); ++i) {
    if (!state_.steps[i].writes()) continue;
    for (int32_t out : state_.written[i]) {
      const Tensor* tensor = loading.tensor(out);
      const auto same = [&](const Rebound& other) { return other.tensor == tensor; };
      if (tensor != nullptr && std::ranges::any_of(state_.rebound, same)) return true;
    }
  }
  return false;
}

bool StepUses::in_one_go(size_t first, size_t from, size_t last) const {
  for (size_t jump : jumps_) {
    const size_t to = state_.steps[jump].destination;
    if ((jump >= first && jump <= last) || (to > first && to <= last)) return false;
  }
  for (size_t i = from; i < last; ++i) {
    if (state_.steps[i].kind == Step::Kind::kMove) return false;
  }
  return true;
}

bool StepUses::writes(size_t begin, size_t end, const Tensor& memory) const {
  for (size_t i = begin; i < end; ++i) {
    if (!state_.steps[i].writes()) continue;
    for (const Tensor* out : state_.steps[i].outs) {
      if (out->data < memory.data + memory.capacity && memory.data < out->data + out->capacity) {
        return true;
      }
    }
  }
  return false;
}

}  // namespace ferry::runner
