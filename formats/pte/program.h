// Program is an in-memory mirror of a .pte file (ExecuTorch program, FlatBuffer identifier ET12).
// It holds the structure only: the bytes of constants stay in the file (reader) or with their
// producer (writer).
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "core/dtype.h"

namespace ferry::pte {

// The place of a planned tensor. `memory` is 1-based, as on the wire; entry `memory` of
// Method::memory_bytes is the size of that memory.
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
  std::vector<int32_t> sizes;      // upper bounds if dynamic
  std::vector<uint8_t> dim_order;  // a permutation; Ferry writes the identity
  Dynamism dynamism = Dynamism::kStatic;
  uint32_t data_index = 0;
  std::optional<Allocation> allocation = {};
  bool external = false;
  std::string fqn = {};  // fully qualified name; may be empty
  bool operator==(const Tensor&) const = default;
};

struct None {
  bool operator==(const None&) const = default;
};
// The items are indices of Int values.
struct IntList {
  std::vector<int32_t> items;
  bool operator==(const IntList&) const = default;
};
// The items are literals, as in DoubleList.
struct BoolList {
  std::vector<bool> items;
  bool operator==(const BoolList&) const = default;
};
struct DoubleList {
  std::vector<double> items;
  bool operator==(const DoubleList&) const = default;
};
// The items are indices of Tensor values with lower indices. In OptionalTensorList, -1 stands for
// None.
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
  std::string overload;  // "out"; may be empty
  // Returns a name such as "aten::linear.out".
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
// Continues at instruction `destination` if the condition, a Bool value or a tensor of them, is
// false. `destination` may be the end of the chain.
struct JumpFalseCall {
  int32_t condition = 0, destination = 0;
  bool operator==(const JumpFalseCall&) const = default;
};
struct FreeCall {
  int32_t value = 0;
  bool operator==(const FreeCall&) const = default;
};
// The arguments are the inputs of the delegate and then its outputs. Unlike in a KernelCall, the
// result is not repeated.
struct DelegateCall {
  int32_t delegate = 0;  // index into Method::delegates
  std::vector<int32_t> args;
  bool operator==(const DelegateCall&) const = default;
};
using Instruction = std::variant<KernelCall, DelegateCall, MoveCall, JumpFalseCall, FreeCall>;

// Work for a backend, in a format of its own. Compile specs are neither kept nor written, because
// the backends that Ferry supports ignore them.
struct Delegate {
  std::string backend;  // "XnnpackBackend"
  uint32_t data = 0;    // index of its blob in ProgramData::delegates; delegates may share a blob
  bool operator==(const Delegate&) const = default;
};

struct Method {
  std::string name;
  std::vector<Value> values;
  std::vector<int32_t> inputs, outputs;  // indices of values
  std::vector<Operator> operators;
  std::vector<Instruction> instructions;  // instructions of the only chain
  std::vector<Delegate> delegates;
  std::vector<uint64_t> memory_bytes;  // entry 0 is the reserved 0 of the wire format
  bool operator==(const Method&) const = default;
};

// Bytes that delegates ask for by name. No tensor is found by that name.
struct NamedData {
  std::string key;    // unique
  uint32_t data = 0;  // index into ProgramData::named; several entries may share one
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

// Returns the bytes that a tensor takes at its upper bound; nullopt on overflow or for a negative
// size.
std::optional<uint64_t> tensor_bytes(const Tensor& tensor);

// StateFinder finds the planned memory of a method that is state, which means that it lives from
// one call to the next. State is planned memory that some instruction reads before any instruction
// has written it. It is found by address and not by value, because a view without a copy is another
// value at the same address. The method must have passed validation, and outlive this object.
class StateFinder {
 public:
  explicit StateFinder(const Method& method);
  // Returns the values that are state, one per address.
  const std::set<int32_t>& values() const { return state_; }

 private:
  void touch(int32_t index, bool read);
  void touch_tensor(int32_t index, bool read);
  void touch_call(const std::string& name, const std::vector<int32_t>& args);

  const Method& method_;
  std::set<std::pair<uint32_t, uint64_t>> touched_;
  std::set<int32_t> state_;
};

}  // namespace ferry::pte
