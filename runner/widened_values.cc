#include "runner/widened_values.h"

#include <string>

namespace ferry::runner {
namespace {

bool is_constant(const pte::Tensor& tensor) {
  return tensor.external || (tensor.data_index > 0 && !tensor.allocation);
}

constexpr std::string_view kSelect = "aten::select_copy.int_out";

// Whether the operator reads argument `index` in any floating-point dtype.
bool reads_matrix(const std::string& op, size_t index) {
  return (op == "aten::linear.out" && index == 1) || (op == "aten::embedding.out" && index == 0);
}

// Per value: it is a constant, or selected from one as the matrix of one expert is from those of
// all, and nothing but linear layers and embeddings reads it.
std::vector<bool> matrices(const pte::Method& method) {
  const auto is_matrix_rank = [](const pte::Tensor& tensor) { return tensor.sizes.size() >= 2; };
  std::vector<bool> matrix(method.values.size(), false);
  for (size_t i = 0; i < method.values.size(); ++i) {
    const auto* tensor = std::get_if<pte::Tensor>(&method.values[i]);
    matrix[i] = tensor != nullptr && is_constant(*tensor) && is_matrix_rank(*tensor);
  }
  const auto calls = [&](const auto& visit) {
    for (const pte::Instruction& instruction : method.instructions) {
      const auto* call = std::get_if<pte::KernelCall>(&instruction);
      if (call == nullptr) continue;
      const std::string op = method.operators[static_cast<size_t>(call->op)].full_name();
      for (size_t a = 0; a < call->args.size(); ++a) visit(op, *call, a);
    }
  };
  // A selection from a stack of matrices may be a matrix; the loop below decides.
  calls([&](const std::string& op, const pte::KernelCall& call, size_t a) {
    if (op != kSelect || a != 0 || !matrix[static_cast<size_t>(call.args[0])]) return;
    matrix[static_cast<size_t>(call.args.back())] = true;
  });
  // Whatever else reads a value makes it none; so does a selection that is none.
  for (bool changed = true; changed;) {
    changed = false;
    calls([&](const std::string& op, const pte::KernelCall& call, size_t a) {
      const auto value = static_cast<size_t>(call.args[a]);
      if (!matrix[value] || reads_matrix(op, a)) return;
      const bool selects = op == kSelect && (a == 0 || a + 1 == call.args.size());
      const auto other = static_cast<size_t>(a == 0 ? call.args.back() : call.args.front());
      if (selects && matrix[other]) return;
      matrix[value] = false;
      changed = true;
    });
  }
  // Operators that take lists take values of one dtype.
  for (const pte::Value& value : method.values) {
    const auto* list = std::get_if<pte::TensorList>(&value);
    if (list == nullptr) continue;
    for (const int32_t item : list->items) matrix[static_cast<size_t>(item)] = false;
  }
  for (const pte::Instruction& instruction : method.instructions) {
    const auto* move = std::get_if<pte::MoveCall>(&instruction);
    if (move == nullptr) continue;
    matrix[static_cast<size_t>(move->from)] = matrix[static_cast<size_t>(move->to)] = false;
  }
  return matrix;
}

}  // namespace

std::vector<std::optional<DType>> widened_values(const pte::Method& method) {
  std::vector<std::optional<DType>> widened(method.values.size());
  std::vector<bool> constant(method.values.size(), false);
  for (size_t i = 0; i < method.values.size(); ++i) {
    const auto* tensor = std::get_if<pte::Tensor>(&method.values[i]);
    if (tensor == nullptr || !is_half(tensor->dtype)) continue;
    constant[i] = is_constant(*tensor);
    const bool wide = !constant[i] && tensor->fqn.empty() && tensor->data_index == 0;
    if (wide) widened[i] = DType::kF32;
  }
  // The matrix of one expert is selected from those of all.
  for (const pte::Instruction& instruction : method.instructions) {
    const auto* call = std::get_if<pte::KernelCall>(&instruction);
    if (call == nullptr || call->args.size() < 2) continue;
    const pte::Operator& op = method.operators[static_cast<size_t>(call->op)];
    if (op.full_name() != kSelect) continue;
    const auto self = static_cast<size_t>(call->args.front());
    const auto out = static_cast<size_t>(call->args.back());
    if (!constant[self]) continue;
    constant[out] = true;
    widened[out].reset();
  }
  return widened;
}

std::vector<std::optional<DType>> f64_values(const pte::Method& method) {
  const std::vector<bool> matrix = matrices(method);
  std::vector<std::optional<DType>> wide(method.values.size());
  for (size_t i = 0; i < method.values.size(); ++i) {
    const auto* tensor = std::get_if<pte::Tensor>(&method.values[i]);
    if (tensor != nullptr && is_castable(tensor->dtype) && !matrix[i]) wide[i] = DType::kF64;
  }
  return wide;
}

}  // namespace ferry::runner
