// The table of executable operators maps a full operator name to a Kernel. A kernel receives a
// Call.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "core/result.h"
#include "core/thread_pool.h"
#include "kernels/value.h"

namespace ferry::kernels {

// A Call is one execution of an instruction. The arguments follow pte::OpSchema in number and kind.
// Input tensors have data. Outs are writable and never overlap inputs, except as Kernel::memory
// allows.
struct Call {
  std::span<Value* const> args;
  int variant;  // Kernel::variant
  ThreadPool& pool;
};

// Errors name tensors by value index. The Method adds the instruction.
using KernelFn = Status (*)(const Call&);

struct Kernel {
  enum class Memory : uint8_t {
    kDisjoint,  // outs must not overlap inputs
    kInPlace,   // an out may be exactly the memory of an input
    kView,      // the out takes its memory from the first input
  };
  std::string_view name;  // such as "aten::add.out"
  KernelFn run;
  int variant = 0;  // distinguishes operators that share a function
  Memory memory = Memory::kDisjoint;
};

// Returns nullptr for an operator without a kernel.
const Kernel* find_kernel(std::string_view full_name);
// Returns true for the operators that take and give complex numbers; others are defined for real
// ones.
bool takes_complex(std::string_view full_name);
// Returns all kernels, sorted by name.
std::span<const Kernel> all_kernels();

}  // namespace ferry::kernels
