// Infers the types of the results of nodes from the types of their arguments. There is one rule per
// operator; the table is in op.cc. This is not a public header.
#pragma once

#include <string>
#include <vector>

#include "core/result.h"
#include "formats/pte/op_schema.h"
#include "graph/dims.h"
#include "graph/graph.h"

namespace ferry::graph {

struct ValueType {
  Value::Kind kind = Value::Kind::kTensor;
  DType dtype = DType::kF32;
  Dims shape = {};
  bool operator==(const ValueType&) const = default;
};

// The input of a rule. The kinds of all arguments have been checked against the schema of the
// operator, and all ids are values of the graph.
struct RuleInput {
  const Graph& graph;
  const IntForms& forms;
  const Node& node;

  bool given(size_t arg) const { return !std::holds_alternative<std::monostate>(node.args[arg]); }
  const Value& tensor(size_t arg) const { return graph[std::get<ValueId>(node.args[arg])]; }
  const std::vector<ValueId>& tensors(size_t arg) const {
    return std::get<TensorListArg>(node.args[arg]).items;
  }
  const IntArg& integer(size_t arg) const { return std::get<IntArg>(node.args[arg]); }
  const std::vector<IntArg>& integers(size_t arg) const {
    return std::get<std::vector<IntArg>>(node.args[arg]);
  }
};

using Types = std::vector<ValueType>;
using InferenceRule = Result<Types> (*)(const RuleInput&);

struct OpInfo {
  Op op;
  std::string_view name;  // the name of the official runtime's operator
  InferenceRule rule;
  // The number of trailing arguments that only inference reads, and that lowering drops.
  size_t pseudo_args = 0;
};
const OpInfo& op_info(Op op);
// Returns the schema of the operator's nodes, outs included, or nullptr if the runtime has no such
// operator.
const pte::OpSchema* op_schema(Op op);

// Checks number and kinds of the arguments, then applies the operator's rule. kInternal, with a
// message that names the operator, if they do not fit.
Result<Types> infer_types(const Graph& graph, const IntForms& forms, const Node& node);

// The range of codes of a quantized dtype (8 or 16 bits); {0, -1} for other dtypes.
struct CodeRange {
  int64_t least = 0;
  int64_t greatest = -1;
};
CodeRange code_range(DType dtype);

// Returns the dtype of an operation on `a` and `b`.
DType promote(DType a, DType b);

// Makes the error that a rule returns if the arguments do not fit.
[[nodiscard]] inline Failure misfit(std::string message) {
  return fail(ErrorCode::kInternal, std::move(message));
}

// -- rules (infer_math.cc, infer_layout.cc)
Result<Types> infer_embedding(const RuleInput& in);
Result<Types> infer_bmm(const RuleInput& in);
Result<Types> infer_linear(const RuleInput& in);
Result<Types> infer_binary(const RuleInput& in);
Result<Types> infer_logical(const RuleInput& in);
Result<Types> infer_float(const RuleInput& in);
Result<Types> infer_clamp_tensor(const RuleInput& in);
Result<Types> infer_compare(const RuleInput& in);
Result<Types> infer_remainder(const RuleInput& in);
Result<Types> infer_softmax(const RuleInput& in);
Result<Types> infer_reduce(const RuleInput& in);
Result<Types> infer_cumsum(const RuleInput& in);
Result<Types> infer_topk(const RuleInput& in);
Result<Types> infer_gather(const RuleInput& in);
Result<Types> infer_experts(const RuleInput& in);  // experts.cc
Result<Types> infer_where(const RuleInput& in);
Result<Types> infer_convolution(const RuleInput& in);
Result<Types> infer_to_copy(const RuleInput& in);
Result<Types> infer_copy(const RuleInput& in);
Result<Types> infer_update_cache(const RuleInput& in);
Result<Types> infer_update_cache_rows(const RuleInput& in);
Result<Types> infer_sdpa(const RuleInput& in);
Result<Types> infer_gated_delta_rule(const RuleInput& in);
Result<Types> infer_layer_norm(const RuleInput& in);
Result<Types> infer_same(const RuleInput& in);
Result<Types> infer_coded_embedding(const RuleInput& in);  // infer_quantize.cc
Result<Types> infer_mixed_linear(const RuleInput& in);     // infer_quantize.cc
Result<Types> infer_block_linear(const RuleInput& in);     // infer_quantize.cc
Result<Types> infer_block_linears(const RuleInput& in);    // infer_quantize.cc
Result<Types> infer_block_embedding(const RuleInput& in);  // infer_quantize.cc
Result<Types> infer_dynamic_linears(const RuleInput& in);  // infer_quantize.cc
Result<Types> infer_quantize(const RuleInput& in);         // infer_quantize.cc
Result<Types> infer_dequantize(const RuleInput& in);       // infer_quantize.cc
Result<Types> infer_choose_qparams(const RuleInput& in);   // infer_quantize.cc
Result<Types> infer_quantize_rows(const RuleInput& in);    // infer_quantize.cc
Result<Types> infer_dequantize_rows(const RuleInput& in);  // infer_quantize.cc
Result<Types> infer_arange(const RuleInput& in);
Result<Types> infer_cat(const RuleInput& in);
Result<Types> infer_slice(const RuleInput& in);
Result<Types> infer_select(const RuleInput& in);
Result<Types> infer_permute(const RuleInput& in);
Result<Types> infer_unsqueeze(const RuleInput& in);
Result<Types> infer_expand(const RuleInput& in);
Result<Types> infer_split(const RuleInput& in);
Result<Types> infer_view(const RuleInput& in);
Result<Types> infer_sym_size(const RuleInput& in);
Result<Types> infer_item(const RuleInput& in);
Result<Types> infer_int(const RuleInput& in);

}  // namespace ferry::graph
