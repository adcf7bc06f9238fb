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
  kInt,  // SymInt, ScalarType and MemoryFormat are ints too
  kIntList,
  kFloat,
  kBool,
  kScalar,  // an Int, Double or Bool value
  kString,
  kBoolList,
  kFloatList,
};

struct ArgSchema {
  std::string name;
  ArgKind kind;
  bool optional = false;  // a value of None is allowed
  bool out = false;       // the operator writes a result here
  bool mutated = false;   // an input that the operator also writes (self of copy_, a cache)
};

// How the result follows the arguments of the schema in a KernelCall.
enum class ResultStyle {
  kRepeatOut,    // the out value is repeated; several outs are repeated as a TensorList
  kTrailingOut,  // symbolic operators: the inputs and then the only out value, which is not
                 // repeated
  kRepeatSelf,   // aten::copy_: `self` is repeated
};

struct OpSchema {
  std::string name;             // "aten::linear"
  std::string overload;         // "out"
  std::vector<ArgSchema> args;  // in call order, outs included
  ResultStyle result;
  // Returns the number of arguments of a KernelCall, including the repeated result.
  size_t call_args() const { return args.size() + (result == ResultStyle::kTrailingOut ? 0 : 1); }
  // Returns a name such as "aten::linear.out".
  std::string full_name() const { return overload.empty() ? name : name + "." + overload; }
};

// Returns nullptr for an operator that is not in the table. `full_name` is "name.overload" or
// "name".
const OpSchema* find_op_schema(std::string_view full_name);

}  // namespace ferry::pte
