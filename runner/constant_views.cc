#include "runner/constant_views.h"

#include <algorithm>

#include "kernels/kernel.h"

namespace ferry::runner {
namespace {

Status select_view(const kernels::Call& call) {
  const kernels::Tensor& self = kernels::tensor(call, 0);
  kernels::Tensor& out = kernels::tensor(call, 3);
  FERRY_RETURN_IF_ERROR(kernels::require_same_dtype(self, out));
  const int64_t size = self.size(0);
  const int64_t index = kernels::integer(call, 2);
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

constexpr kernels::Kernel kSelectView = {"aten::select_copy.int_out", select_view, 0,
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
      if (!rebound[out]) state_.rebound.push_back({step.args[3]->tensor, *step.args[3]->tensor});
      rebound[out] = true;
    }
  }

 private:
  static size_t out_of(const Step& step) { return static_cast<size_t>(step.args[3]->id); }

  bool selects_from_constant(const Step& step) const {
    if (step.kind != Step::Kind::kKernel || step.kernel->name != kSelectView.name) return false;
    const auto& self = std::get<pte::Tensor>(method_.values[static_cast<size_t>(step.args[0]->id)]);
    const bool constant = !self.allocation && (self.external || self.data_index > 0);
    const size_t dim = static_cast<size_t>(step.args[1]->id);
    return constant && !self.sizes.empty() && step.args[1]->integer == 0 && writers_[dim] == 0 &&
           !is_port(static_cast<int32_t>(dim));
  }

  // Values that views or moves alias; they may be written through the alias.
  std::vector<bool> aliased_values() const {
    std::vector<bool> aliased(writers_.size(), false);
    for (const Step& step : state_.steps) {
      if (step.is_view()) aliased[static_cast<size_t>(step.args[0]->id)] = true;
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

}  // namespace ferry::runner
