#include "formats/pte/program.h"

#include <variant>

#include "core/checked.h"
#include "formats/pte/op_schema.h"

namespace ferry::pte {

std::optional<uint64_t> tensor_bytes(const Tensor& tensor) {
  int64_t bits = 1;
  for (int32_t size : tensor.sizes) {
    if (size < 0 || __builtin_mul_overflow(bits, int64_t{size}, &bits)) return std::nullopt;
  }
  if (__builtin_mul_overflow(bits, int64_t{dtype_bits(tensor.dtype)}, &bits)) return std::nullopt;
  return static_cast<uint64_t>(bits / 8) + (bits % 8 == 0 ? 0 : 1);
}

StateFinder::StateFinder(const Method& method) : method_(method) {
  for (int32_t input : method.inputs) touch(input, /*read=*/false);
  for (const Instruction& instruction : method.instructions) {
    if (const auto* call = std::get_if<KernelCall>(&instruction)) {
      touch_call(method.operators[static_cast<size_t>(call->op)].full_name(), call->args);
    } else if (const auto* move = std::get_if<MoveCall>(&instruction)) {
      touch(move->from, /*read=*/true);
      touch(move->to, /*read=*/false);
    } else if (const auto* delegate = std::get_if<DelegateCall>(&instruction)) {
      // The program does not state which of its arguments a delegate writes.
      for (int32_t arg : delegate->args) touch(arg, /*read=*/false);
    }
  }
}

void StateFinder::touch(int32_t index, bool read) {
  const Value& value = method_.values[static_cast<size_t>(index)];
  if (const auto* list = std::get_if<TensorList>(&value)) {
    for (int32_t item : list->items) touch_tensor(item, read);
  } else {
    touch_tensor(index, read);
  }
}

void StateFinder::touch_tensor(int32_t index, bool read) {
  const auto* t = std::get_if<Tensor>(&method_.values[static_cast<size_t>(index)]);
  if (t == nullptr || !t->allocation) return;
  const bool first = touched_.emplace(t->allocation->memory, t->allocation->offset).second;
  if (first && read) state_.insert(index);
}

void StateFinder::touch_call(const std::string& name, const std::vector<int32_t>& args) {
  const OpSchema* schema = find_op_schema(name);
  const auto is_out = [&](size_t i) {
    return schema != nullptr && (i >= schema->args.size() || schema->args[i].out);
  };
  for (const bool read : {true, false}) {
    for (size_t i = 0; i < args.size(); ++i) {
      if (is_out(i) != read) touch(args[i], read);
    }
  }
}

}  // namespace ferry::pte
