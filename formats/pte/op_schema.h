// Argument lists of the operators that the official runtime resolves (ExecuTorch 1.5.0 with
// optimized, quantized and llama:: kernels). One table serves graph building, lowering, program
// validation and execution.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace ferry::pte {

enum class ArgKind {
  kTensor,
  kTensorList,
  kOptionalTensorList,
  kInt,  // also SymInt, ScalarType, MemoryFormat
  kIntList,
  kFloat,
  kBool,
  kScalar,  // Int, Double or Bool value
  kString,
  kBoolList,
};

struct ArgSchema {
  std::string name;
  ArgKind kind;
  bool optional = false;  // a None value is allowed
  bool out = false;       // where a result goes
  bool mutated = false;   // an input that the operator also writes (copy_'s self, a cache)
};

// How the result appears after the schema's arguments in a KernelCall.
enum class ResultStyle {
  kRepeatOut,    // the out value again; for several outs a TensorList of them
  kTrailingOut,  // symbolic operators: inputs, then the one out value, nothing repeated
  kRepeatSelf,   // aten::copy_: `self` again
};

struct OpSchema {
  std::string name;             // "aten::linear"
  std::string overload;         // "out"
  std::vector<ArgSchema> args;  // outs included, in call order
  ResultStyle result;
  // Arguments of a KernelCall: args plus the repeated result.
  size_t call_args() const { return args.size() + (result == ResultStyle::kTrailingOut ? 0 : 1); }
  // "aten::linear.out"
  std::string full_name() const { return overload.empty() ? name : name + "." + overload; }
};

// nullptr for an operator that is not in the table. `full_name` is "name.overload" or "name".
const OpSchema* find_op_schema(std::string_view full_name);

}  // namespace ferry::pte
