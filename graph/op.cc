// The table of operators.
#include "graph/op.h"

#include <array>

#include "graph/dynamic_linears.h"
#include "graph/experts.h"
#include "graph/shape_inference.h"

namespace ferry::graph {
namespace {

// The rows have the order of the enumeration.
constexpr std::array kOps = {
    OpInfo{Op::kEmbedding, "aten::embedding.out", infer_embedding},
    OpInfo{Op::kBmm, "aten::bmm.out", infer_bmm},
    OpInfo{Op::kLinear, "aten::linear.out", infer_linear},
    OpInfo{Op::kAdd, "aten::add.out", infer_binary},
    OpInfo{Op::kSub, "aten::sub.out", infer_binary},
    OpInfo{Op::kMul, "aten::mul.out", infer_binary},
    OpInfo{Op::kMulScalar, "aten::mul.Scalar_out", infer_float},
    OpInfo{Op::kDiv, "aten::div.out", infer_binary},
    OpInfo{Op::kMean, "aten::mean.out", infer_reduce},
    OpInfo{Op::kSum, "aten::sum.IntList_out", infer_reduce},
    OpInfo{Op::kAmin, "aten::amin.out", infer_reduce},
    OpInfo{Op::kCumsum, "aten::cumsum.out", infer_cumsum},
    OpInfo{Op::kRsqrt, "aten::rsqrt.out", infer_float},
    OpInfo{Op::kCos, "aten::cos.out", infer_float},
    OpInfo{Op::kSin, "aten::sin.out", infer_float},
    OpInfo{Op::kSigmoid, "aten::sigmoid.out", infer_float},
    OpInfo{Op::kExp, "aten::exp.out", infer_float},
    OpInfo{Op::kLog1p, "aten::log1p.out", infer_float},
    OpInfo{Op::kTanh, "aten::tanh.out", infer_float},
    OpInfo{Op::kGelu, "aten::gelu.out", infer_float},
    OpInfo{Op::kRelu, "aten::relu.out", infer_float},
    OpInfo{Op::kClamp, "aten::clamp.out", infer_float},
    OpInfo{Op::kClampTensor, "aten::clamp.Tensor_out", infer_clamp_tensor},
    OpInfo{Op::kSoftmax, "aten::_softmax.out", infer_softmax},
    OpInfo{Op::kTopk, "aten::topk.values", infer_topk},
    OpInfo{Op::kGather, "aten::gather.out", infer_gather},
    OpInfo{Op::kWhere, "aten::where.self_out", infer_where},
    OpInfo{Op::kEqScalar, "aten::eq.Scalar_out", infer_compare},
    OpInfo{Op::kGtScalar, "aten::gt.Scalar_out", infer_compare},
    OpInfo{Op::kGeScalar, "aten::ge.Scalar_out", infer_compare},
    OpInfo{Op::kLtScalar, "aten::lt.Scalar_out", infer_compare},
    OpInfo{Op::kLogicalAnd, "aten::logical_and.out", infer_logical},
    OpInfo{Op::kLogicalOr, "aten::logical_or.out", infer_logical},
    OpInfo{Op::kRemainder, "aten::remainder.Scalar_out", infer_remainder},
    OpInfo{Op::kArange, "aten::arange.start_out", infer_arange},
    OpInfo{Op::kCat, "aten::cat.out", infer_cat},
    OpInfo{Op::kSlice, "aten::slice_copy.Tensor_out", infer_slice},
    OpInfo{Op::kSelect, "aten::select_copy.int_out", infer_select},
    OpInfo{Op::kPermute, "aten::permute_copy.out", infer_permute},
    OpInfo{Op::kUnsqueeze, "aten::unsqueeze_copy.out", infer_unsqueeze},
    OpInfo{Op::kExpand, "aten::expand_copy.out", infer_expand},
    OpInfo{Op::kSplit, "aten::split_with_sizes_copy.out", infer_split},
    OpInfo{Op::kConvolution, "aten::convolution.out", infer_convolution},
    OpInfo{Op::kToCopy, "aten::_to_copy.out", infer_to_copy, 1},
    OpInfo{Op::kCopy, "aten::copy_", infer_copy},
    OpInfo{Op::kUpdateCache, "llama::update_cache.out", infer_update_cache},
    OpInfo{Op::kUpdateCacheRows, "llama::update_cache_with_indices.out", infer_update_cache_rows},
    OpInfo{Op::kSdpa, "llama::custom_sdpa.out", infer_sdpa},
    OpInfo{Op::kGatedDeltaRule, "llama::gated_delta_rule.out", infer_gated_delta_rule},
    OpInfo{Op::kLayerNorm, "aten::native_layer_norm.out", infer_layer_norm},
    OpInfo{Op::kFallback, "llama::fallback.out", infer_same},
    OpInfo{Op::kEmbedding4Bit, "quantized_decomposed::embedding_4bit.dtype_out",
           infer_coded_embedding},
    OpInfo{Op::kEmbeddingByte, "quantized_decomposed::embedding_byte.dtype_out",
           infer_coded_embedding},
    OpInfo{Op::kMixedLinear, "quantized_decomposed::mixed_linear.out", infer_mixed_linear},
    OpInfo{Op::kBlockLinear, "ferry::block_linear.out", infer_block_linear},
    OpInfo{Op::kBlockLinears, "ferry::block_linears.out", infer_block_linears},
    OpInfo{Op::kBlockEmbedding, "ferry::block_embedding.out", infer_block_embedding},
    OpInfo{Op::kDynamicLinears, "dynamic linears", infer_dynamic_linears},
    OpInfo{Op::kQuantize, "quantized_decomposed::quantize_per_tensor.out", infer_quantize},
    OpInfo{Op::kDequantize, "quantized_decomposed::dequantize_per_tensor.out", infer_dequantize},
    OpInfo{Op::kChooseQparams, "quantized_decomposed::choose_qparams_per_token_asymmetric.out",
           infer_choose_qparams},
    OpInfo{Op::kQuantizeRows, "quantized_decomposed::quantize_per_token.out", infer_quantize_rows},
    OpInfo{Op::kDequantizeRows, "quantized_decomposed::dequantize_per_token.out",
           infer_dequantize_rows},
    OpInfo{Op::kView, "executorch_prim::et_view.default", infer_view},
    OpInfo{Op::kExperts, "experts", infer_experts},
    OpInfo{Op::kSymSize, "aten::sym_size.int", infer_sym_size},
    OpInfo{Op::kLocalScalar, "aten::_local_scalar_dense", infer_item},
    OpInfo{Op::kIntAdd, "executorch_prim::add.Scalar", infer_int},
    OpInfo{Op::kIntSub, "executorch_prim::sub.Scalar", infer_int},
    OpInfo{Op::kIntMax, "executorch_prim::sym_max.Scalar", infer_int},
};

constexpr bool rows_match_enum() {
  for (size_t i = 0; i < kOps.size(); ++i) {
    if (static_cast<size_t>(kOps[i].op) != i) return false;
  }
  return true;
}
static_assert(rows_match_enum());

}  // namespace

const OpInfo& op_info(Op op) { return kOps[static_cast<size_t>(op)]; }

const pte::OpSchema* op_schema(Op op) {
  if (op == Op::kExperts) return &experts_schema();
  if (op == Op::kDynamicLinears) return &dynamic_linears_schema();
  return pte::find_op_schema(op_name(op));
}

std::string_view op_name(Op op) { return op_info(op).name; }

}  // namespace ferry::graph
