// The operators that can be executed: full operator name -> kernel.
#pragma once

#include <span>
#include <string_view>

#include "core/result.h"
#include "core/thread_pool.h"
#include "runner/value.h"

namespace ferry::runtime {

// One execution of an instruction. The arguments follow pte::OpSchema in number and kind; input
// tensors have data, outs are writable and share no memory with inputs unless Kernel::in_place.
struct Call {
  std::span<Value* const> args;
  int variant;  // Kernel::variant
  ThreadPool& pool;
};

// Errors name tensors by value index; the Method adds the instruction.
using KernelFn = Status (*)(const Call&);

struct Kernel {
  enum class Memory : uint8_t {
    kDisjoint,  // outs must not overlap inputs
    kInPlace,   // an out may be exactly the memory of an input
    kView,      // the out takes its memory from the first input
  };
  std::string_view name;  // "aten::add.out"
  KernelFn run;
  int variant = 0;  // tells operators apart that share a function
  Memory memory = Memory::kDisjoint;
};

// nullptr for an operator without a kernel.
const Kernel* find_kernel(std::string_view full_name);
// All of them, sorted by name.
std::span<const Kernel> all_kernels();

}  // namespace ferry::runtime
