// The operators of graphs. op.cc has one row for each: the operator of the official runtime to
// which it is lowered (formats/pte/op_schema.h has the arguments), and its shape inference.
#pragma once

#include <string_view>

namespace ferry::graph {

enum class Op {
  // tensors
  kEmbedding,  // aten::embedding.out
  kBmm,        // aten::bmm.out
  kLinear,     // aten::linear.out without bias, which the optimized kernel does not take everywhere
  kAdd,        // aten::add.out
  kSub,        // aten::sub.out
  kMul,        // aten::mul.out
  kMulScalar,  // aten::mul.Scalar_out
  kDiv,        // aten::div.out
  kMean,       // aten::mean.out
  kSum,        // aten::sum.IntList_out
  kAmin,       // aten::amin.out
  kCumsum,     // aten::cumsum.out
  kRsqrt,      // aten::rsqrt.out
  kCos,        // aten::cos.out
  kSin,        // aten::sin.out
  kSigmoid,    // aten::sigmoid.out
  kExp,        // aten::exp.out
  kLog1p,      // aten::log1p.out
  kTanh,       // aten::tanh.out
  kGelu,       // aten::gelu.out
  kRelu,       // aten::relu.out
  kClamp,      // aten::clamp.out
  kClampTensor,      // aten::clamp.Tensor_out
  kSoftmax,          // aten::_softmax.out
  kTopk,             // aten::topk.values
  kGather,           // aten::gather.out
  kWhere,            // aten::where.self_out
  kEqScalar,         // aten::eq.Scalar_out
  kGtScalar,         // aten::gt.Scalar_out
  kGeScalar,         // aten::ge.Scalar_out
  kLtScalar,         // aten::lt.Scalar_out
  kLogicalAnd,       // aten::logical_and.out
  kLogicalOr,        // aten::logical_or.out
  kRemainder,        // aten::remainder.Scalar_out
  kArange,           // aten::arange.start_out
  kCat,              // aten::cat.out
  kSlice,            // aten::slice_copy.Tensor_out
  kSelect,           // aten::select_copy.int_out
  kPermute,          // aten::permute_copy.out
  kUnsqueeze,        // aten::unsqueeze_copy.out
  kExpand,           // aten::expand_copy.out
  kSplit,            // aten::split_with_sizes_copy.out
  kConvolution,      // aten::convolution.out
  kToCopy,           // aten::_to_copy.out
  kCopy,             // aten::copy_  (writes a buffer)
  kUpdateCache,      // llama::update_cache.out
  kUpdateCacheRows,  // llama::update_cache_with_indices.out
  kSdpa,             // llama::custom_sdpa.out
  kGatedDeltaRule,   // llama::gated_delta_rule.out
  kLayerNorm,        // aten::native_layer_norm.out
  kFallback,         // llama::fallback.out: a copy between parts of a program
  kEmbedding4Bit,    // quantized_decomposed::embedding_4bit.dtype_out
  kEmbeddingByte,    // quantized_decomposed::embedding_byte.dtype_out
  kMixedLinear,      // quantized_decomposed::mixed_linear.out
  kBlockLinear,      // ferry::block_linear.out, which the official runtime does not have
  kBlockLinears,     // ferry::block_linears.out, likewise: several matrices times one activation
  kBlockEmbedding,   // ferry::block_embedding.out, likewise
  kDynamicLinears,   // a call of the XNNPACK delegate (dynamic_linears.h)
  kQuantize,         // quantized_decomposed::quantize_per_tensor.out
  kDequantize,       // quantized_decomposed::dequantize_per_tensor.out
  kChooseQparams,    // quantized_decomposed::choose_qparams_per_token_asymmetric.out
  kQuantizeRows,     // quantized_decomposed::quantize_per_token.out
  kDequantizeRows,   // quantized_decomposed::dequantize_per_token.out
  kView,             // executorch_prim::et_view.default, shares memory with its input
  kExperts,          // no operator of the runtime but a loop over several (experts.h)
  // scalars
  kSymSize,      // aten::sym_size.int
  kLocalScalar,  // aten::_local_scalar_dense
  kIntAdd,       // executorch_prim::add.Scalar
  kIntSub,       // executorch_prim::sub.Scalar
  kIntMax,       // executorch_prim::sym_max.Scalar
};

// Returns the full name, such as "aten::linear.out".
std::string_view op_name(Op op);

}  // namespace ferry::graph
