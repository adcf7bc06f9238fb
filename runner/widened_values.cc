#include "runner/widened_values.h"

#include <string>

namespace ferry::runner {
namespace {

bool is_constant(const pte::Tensor& tensor) {
  return tensor.external || (tensor.data_index > 0 && !tensor.allocation);
}

}  // namespace

std::vector<bool> widened_values(const pte::Method& method) {
  std::vector<bool> widened(method.values.size(), false);
  std::vector<bool> constant(method.values.size(), false);
  for (size_t i = 0; i < method.values.size(); ++i) {
    const auto* tensor = std::get_if<pte::Tensor>(&method.values[i]);
    if (tensor == nullptr || !is_half(tensor->dtype)) continue;
    constant[i] = is_constant(*tensor);
    widened[i] = !constant[i] && tensor->fqn.empty() && tensor->data_index == 0;
  }
  // The matrix of one expert is selected from those of all.
  for (const pte::Instruction& instruction : method.instructions) {
    const auto* call = std::get_if<pte::KernelCall>(&instruction);
    if (call == nullptr || call->args.size() < 2) continue;
    const pte::Operator& op = method.operators[static_cast<size_t>(call->op)];
    if (op.full_name() != "aten::select_copy.int_out") continue;
    const auto self = static_cast<size_t>(call->args.front());
    const auto out = static_cast<size_t>(call->args.back());
    if (!constant[self]) continue;
    constant[out] = true;
    widened[out] = false;
  }
  return widened;
}

}  // namespace ferry::runner
