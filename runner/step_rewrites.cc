// Look-ups for all rewrites of steps, and the views of constants.
#include "runner/step_rewrites.h"

#include <algorithm>

#include "formats/pte/operator_args.h"
#include "kernels/kernel.h"

namespace ferry::runner {
namespace {

Status select_view(const kernels::Call& call) {
  const kernels::Tensor& self = kernels::tensor(call, pte::ops::SelectCopy::kSelf);
  kernels::Tensor& out = kernels::tensor(call, pte::ops::SelectCopy::kOut);
  FERRY_RETURN_IF_ERROR(kernels::require_same_dtype(self, out));
  const int64_t size = self.size(0);
  const int64_t index = kernels::integer(call, pte::ops::SelectCopy::kIndex);
  if (index < -size || index >= size) {
    return bad_input(fmt::format("index {} is outside of {}", index, kernels::describe(self)));
  }
  kernels::Dims sizes = self.sizes;
  sizes.erase(0);
  FERRY_RETURN_IF_ERROR(kernels::resize(out, sizes));
  const int64_t slice = out.bytes();
  out.data = self.data + (index < 0 ? index + size : index) * slice;
  out.writable = false;
  return {};
}

constexpr kernels::Kernel kSelectView = {pte::ops::SelectCopy::kName, select_view, 0,
                                         kernels::Kernel::Memory::kView};

class ConstantFinder {
 public:
  ConstantFinder(const pte::Method& method, MethodState& state)
      : method_(method), state_(state), writers_(method.values.size(), 0) {}

  void run() {
    for (const std::vector<int32_t>& written : state_.written) {
      for (int32_t value : written) ++writers_[static_cast<size_t>(value)];
    }
    // Several selections may share one result.
    std::vector<int> selections(writers_.size(), 0);
    std::vector<size_t> candidates;
    for (size_t i = 0; i < state_.steps.size(); ++i) {
      if (!selects_from_constant(state_.steps[i])) continue;
      candidates.push_back(i);
      ++selections[out_of(state_.steps[i])];
    }
    const std::vector<bool> aliased = aliased_values();
    std::vector<bool> rebound(writers_.size(), false);
    for (size_t i : candidates) {
      Step& step = state_.steps[i];
      const size_t out = out_of(step);
      const bool alone = selections[out] == writers_[out] && !aliased[out];
      if (!alone || is_port(static_cast<int32_t>(out))) continue;
      step.kernel = &kSelectView;
      if (!rebound[out])
        state_.rebound.push_back({step.args[pte::ops::SelectCopy::kOut]->tensor,
                                  *step.args[pte::ops::SelectCopy::kOut]->tensor});
      rebound[out] = true;
    }
  }

 private:
  static size_t out_of(const Step& step) {
    return static_cast<size_t>(step.args[pte::ops::SelectCopy::kOut]->id);
  }

  bool selects_from_constant(const Step& step) const {
    if (step.kind != Step::Kind::kKernel || step.kernel->name != kSelectView.name) return false;
    const auto& self = std::get<pte::Tensor>(
        method_.values[static_cast<size_t>(step.args[pte::ops::SelectCopy::kSelf]->id)]);
    const bool constant = !self.allocation && (self.external || self.data_index > 0);
    const size_t dim = static_cast<size_t>(step.args[pte::ops::SelectCopy::kDim]->id);
    return constant && !self.sizes.empty() && step.args[pte::ops::SelectCopy::kDim]->integer == 0 &&
           writers_[dim] == 0 && !is_port(static_cast<int32_t>(dim));
  }

  // Returns the values that views or moves alias, because they may be written through the alias.
  std::vector<bool> aliased_values() const {
    std::vector<bool> aliased(writers_.size(), false);
    for (const Step& step : state_.steps) {
      if (step.is_view()) aliased[static_cast<size_t>(step.args.front()->id)] = true;
      if (step.kind == Step::Kind::kMove) aliased[static_cast<size_t>(step.from->id)] = true;
    }
    return aliased;
  }

  bool is_port(int32_t value) const {
    return std::ranges::count(state_.inputs, value) > 0 ||
           std::ranges::count(state_.outputs, value) > 0;
  }

  const pte::Method& method_;
  MethodState& state_;
  std::vector<int> writers_;  // per value: instructions that write it
};

}  // namespace

void view_selected_constants(const pte::Method& method, MethodState& state) {
  ConstantFinder(method, state).run();
}

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
      const kernels::Tensor* tensor = loading.tensor(out);
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

bool StepUses::writes(size_t begin, size_t end, const kernels::Tensor& memory,
                      std::span<const size_t> except) const {
  // Tensors without memory yet are inputs and outputs, which share none with planned ones.
  if (memory.data == nullptr) return false;
  for (size_t i = begin; i < end; ++i) {
    if (!state_.steps[i].writes() || std::ranges::count(except, i) > 0) continue;
    for (const kernels::Tensor* out : state_.steps[i].outs) {
      if (out->data == nullptr) continue;
      if (out->data < memory.data + memory.capacity && memory.data < out->data + out->capacity) {
        return true;
      }
    }
  }
  return false;
}

}  // namespace ferry::runner
