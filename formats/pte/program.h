// Program: an in-memory mirror of a .pte file (ExecuTorch program, FlatBuffer identifier ET12).
// Structure only: the bytes of constants stay in the file (reader) or with their producer (writer).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "core/dtype.h"

namespace ferry::pte {

// Where a planned tensor lives: `memory` is 1-based, as on the wire; entry m of
// Method::memory_bytes is its size.
struct Allocation {
  uint32_t memory = 1;
  uint64_t offset = 0;
  bool operator==(const Allocation&) const = default;
};

enum class Dynamism : int8_t { kStatic = 0, kDynamicBound = 1 };

// How the data of a tensor is found:
//   external                  constant (or initial contents) by name `fqn` in a .ptd file
//   data_index > 0, no alloc  constant `data_index` of the program's constant segment
//   data_index > 0, alloc     mutable buffer, initial contents in the mutable data segment
//   data_index == 0, alloc    planned memory: activation, or mutable buffer without contents
//   neither                   set at run time (inputs, outputs, views)
struct Tensor {
  DType dtype = DType::kF32;
  std::vector<int32_t> sizes;      // upper bounds where dynamic
  std::vector<uint8_t> dim_order;  // a permutation; ours is always the identity
  Dynamism dynamism = Dynamism::kStatic;
  uint32_t data_index = 0;
  std::optional<Allocation> allocation = {};
  bool external = false;
  std::string fqn = {};  // fully qualified name, may be empty
  bool operator==(const Tensor&) const = default;
};

struct None {
  bool operator==(const None&) const = default;
};
// Indices of Int values.
struct IntList {
  std::vector<int32_t> items;
  bool operator==(const IntList&) const = default;
};
// Literals.
struct BoolList {
  std::vector<bool> items;
  bool operator==(const BoolList&) const = default;
};
struct DoubleList {
  std::vector<double> items;
  bool operator==(const DoubleList&) const = default;
};
// Indices of Tensor values that come earlier; in the second one -1 is None.
struct TensorList {
  std::vector<int32_t> items;
  bool operator==(const TensorList&) const = default;
};
struct OptionalTensorList {
  std::vector<int32_t> items;
  bool operator==(const OptionalTensorList&) const = default;
};

using Value = std::variant<None, int64_t, bool, double, Tensor, std::string, IntList, DoubleList,
                           BoolList, TensorList, OptionalTensorList>;

struct Operator {
  std::string name;      // "aten::linear"
  std::string overload;  // "out", may be empty
  // "aten::linear.out"
  std::string full_name() const { return overload.empty() ? name : name + "." + overload; }
  bool operator==(const Operator&) const = default;
};

struct KernelCall {
  int32_t op = 0;  // index into Method::operators
  std::vector<int32_t> args;
  bool operator==(const KernelCall&) const = default;
};
struct MoveCall {
  int32_t from = 0, to = 0;
  bool operator==(const MoveCall&) const = default;
};
// Continues at instruction `destination` when the condition, a Bool value or a tensor of them, is
// false. `destination` may be the end.
struct JumpFalseCall {
  int32_t condition = 0, destination = 0;
  bool operator==(const JumpFalseCall&) const = default;
};
struct FreeCall {
  int32_t value = 0;
  bool operator==(const FreeCall&) const = default;
};
// Has the inputs of the delegate and then its outputs as arguments, none of them twice for the
// result, as kernels have it.
struct DelegateCall {
  int32_t delegate = 0;  // index into Method::delegates
  std::vector<int32_t> args;
  bool operator==(const DelegateCall&) const = default;
};
using Instruction = std::variant<KernelCall, DelegateCall, MoveCall, JumpFalseCall, FreeCall>;

// Work for a backend, in a format of its own. Compile specs are neither kept nor written: the
// backends that we know ignore them.
struct Delegate {
  std::string backend;  // "XnnpackBackend"
  uint32_t data = 0;    // its blob: index into ProgramData::delegates; several may share one
  bool operator==(const Delegate&) const = default;
};

struct Method {
  std::string name;
  std::vector<Value> values;
  std::vector<int32_t> inputs, outputs;  // value indices
  std::vector<Operator> operators;
  std::vector<Instruction> instructions;  // of the only chain
  std::vector<Delegate> delegates;
  std::vector<uint64_t> memory_bytes;  // entry 0 is the reserved 0 of the wire format
  bool operator==(const Method&) const = default;
};

// Bytes that delegates ask for by name. Tensors are never found by it.
struct NamedData {
  std::string key;    // unique
  uint32_t data = 0;  // index into ProgramData::named; several may share one
  bool operator==(const NamedData&) const = default;
};

struct Program {
  std::vector<Method> methods;
  std::vector<NamedData> named_data = {};
  const Method* find(std::string_view method) const {
    for (const Method& m : methods)
      if (m.name == method) return &m;
    return nullptr;
  }
  bool operator==(const Program&) const = default;
};

// Bytes that a tensor takes at its upper bound; nullopt on overflow or a negative size.
std::optional<uint64_t> tensor_bytes(const Tensor& tensor);

}  // namespace ferry::pte
