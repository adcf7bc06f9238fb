#include "kernels/kernel_table.h"

#include <algorithm>
#include <type_traits>

#include "kernels/kernels.h"

namespace ferry::kernels {
namespace {

template <class E>
constexpr Kernel row(std::string_view name, KernelFn run, E variant,
                     Kernel::Memory memory = Kernel::Memory::kDisjoint) {
  return {name, run, static_cast<int>(variant), memory};
}
constexpr Kernel row(std::string_view name, KernelFn run) { return row(name, run, 0); }
// An elementwise operator computes each output from the inputs at the same index only.
template <class E>
constexpr Kernel each(std::string_view name, KernelFn run, E variant) {
  return row(name, run, variant, Kernel::Memory::kInPlace);
}
constexpr Kernel each(std::string_view name, KernelFn run) { return each(name, run, 0); }

using enum BinaryOp;

// The table is sorted by name. For same_copy, to_copy and to_dim_order_copy the variant is the
// index of the out among the arguments.
constexpr Kernel kKernels[] = {
    row("aten::_local_scalar_dense", local_scalar),
    row("aten::_log_softmax.out", softmax, 1),
    row("aten::_softmax.out", softmax, 0),
    row("aten::_to_copy.out", to_copy, 3),
    each("aten::abs.out", unary, kernels::UnaryOp::kAbs),
    each("aten::acos.out", unary, kernels::UnaryOp::kAcos),
    each("aten::add.Scalar_out", add_scalar_alpha, kAdd),
    each("aten::add.out", add_alpha, kAdd),
    row("aten::addmm.out", addmm),
    each("aten::alias_copy.out", same_copy, 1),
    row("aten::amax.out", reduce_dims, kernels::Reduction::kMax),
    row("aten::amin.out", reduce_dims, kernels::Reduction::kMin),
    row("aten::any.all_out", reduce_all, kernels::Reduction::kAny),
    row("aten::any.dims_out", reduce_dims, kernels::Reduction::kAny),
    row("aten::any.out", reduce_dim, kernels::Reduction::kAny),
    row("aten::arange.out", arange),
    row("aten::arange.start_out", arange_start),
    row("aten::argmax.out", reduce_dim, kernels::Reduction::kArgMax),
    row("aten::argmin.out", reduce_dim, kernels::Reduction::kArgMin),
    each("aten::asin.out", unary, kernels::UnaryOp::kAsin),
    each("aten::atan.out", unary, kernels::UnaryOp::kAtan),
    each("aten::atan2.out", binary_tensor, kAtan2),
    each("aten::bitwise_and.Scalar_out", binary_scalar, kBitAnd),
    each("aten::bitwise_and.Tensor_out", binary_tensor, kBitAnd),
    each("aten::bitwise_not.out", unary, kernels::UnaryOp::kBitNot),
    each("aten::bitwise_or.Scalar_out", binary_scalar, kBitOr),
    each("aten::bitwise_or.Tensor_out", binary_tensor, kBitOr),
    each("aten::bitwise_xor.Scalar_out", binary_scalar, kBitXor),
    each("aten::bitwise_xor.Tensor_out", binary_tensor, kBitXor),
    row("aten::bmm.out", bmm),
    row("aten::cat.out", cat),
    each("aten::ceil.out", unary, kernels::UnaryOp::kCeil),
    each("aten::clamp.out", clamp),
    each("aten::clone.out", same_copy, 2),
    row("aten::constant_pad_nd.out", constant_pad),
    row("aten::convolution.out", convolution),
    row("aten::copy.out", copy),
    row("aten::copy_", copy_inplace, 0, Kernel::Memory::kInPlace),
    each("aten::cos.out", unary, kernels::UnaryOp::kCos),
    each("aten::cosh.out", unary, kernels::UnaryOp::kCosh),
    row("aten::cumsum.out", cumsum),
    each("aten::detach_copy.out", same_copy, 1),
    each("aten::div.Scalar_out", binary_scalar, kDiv),
    each("aten::div.out", binary_tensor, kDiv),
    row("aten::embedding.out", embedding),
    row("aten::empty.out", fill_constant, 2),
    each("aten::eq.Scalar_out", binary_scalar, kEq),
    each("aten::eq.Tensor_out", binary_tensor, kEq),
    each("aten::erf.out", unary, kernels::UnaryOp::kErf),
    each("aten::exp.out", unary, kernels::UnaryOp::kExp),
    row("aten::expand_copy.out", expand),
    each("aten::expm1.out", unary, kernels::UnaryOp::kExpm1),
    each("aten::fill.Scalar_out", fill_scalar),
    row("aten::fill.Tensor_out", fill_tensor),
    each("aten::floor.out", unary, kernels::UnaryOp::kFloor),
    each("aten::floor_divide.out", binary_tensor, kFloorDiv),
    each("aten::fmod.Scalar_out", binary_scalar, kFmod),
    each("aten::fmod.Tensor_out", binary_tensor, kFmod),
    row("aten::full.out", full),
    each("aten::full_like.out", full_like),
    row("aten::gather.out", gather),
    each("aten::ge.Scalar_out", binary_scalar, kGe),
    each("aten::ge.Tensor_out", binary_tensor, kGe),
    each("aten::gelu.out", gelu),
    each("aten::gt.Scalar_out", binary_scalar, kGt),
    each("aten::gt.Tensor_out", binary_tensor, kGt),
    row("aten::index.Tensor_out", index),
    row("aten::index_put.out", index_put),
    row("aten::index_put_", index_put_inplace),
    row("aten::index_select.out", index_select),
    each("aten::isinf.out", unary, kernels::UnaryOp::kIsInf),
    each("aten::isnan.out", unary, kernels::UnaryOp::kIsNan),
    each("aten::le.Scalar_out", binary_scalar, kLe),
    each("aten::le.Tensor_out", binary_tensor, kLe),
    each("aten::lift_fresh_copy.out", same_copy, 1),
    row("aten::linear.out", linear),
    each("aten::log.out", unary, kernels::UnaryOp::kLog),
    each("aten::log10.out", unary, kernels::UnaryOp::kLog10),
    each("aten::log1p.out", unary, kernels::UnaryOp::kLog1p),
    each("aten::log2.out", unary, kernels::UnaryOp::kLog2),
    each("aten::logical_and.out", binary_tensor, kLogicalAnd),
    each("aten::logical_not.out", unary, kernels::UnaryOp::kLogicalNot),
    each("aten::logical_or.out", binary_tensor, kLogicalOr),
    each("aten::logical_xor.out", binary_tensor, kLogicalXor),
    each("aten::lt.Scalar_out", binary_scalar, kLt),
    each("aten::lt.Tensor_out", binary_tensor, kLt),
    each("aten::masked_fill.Scalar_out", masked_fill),
    row("aten::max.dim_max", reduce_with_index, kernels::Reduction::kMax),
    each("aten::maximum.out", binary_tensor, kMaximum),
    row("aten::mean.out", reduce_dims_dtype, kernels::Reduction::kMean),
    row("aten::min.dim_min", reduce_with_index, kernels::Reduction::kMin),
    each("aten::minimum.out", binary_tensor, kMinimum),
    row("aten::mm.out", mm),
    each("aten::mul.Scalar_out", binary_scalar, kMul),
    each("aten::mul.out", binary_tensor, kMul),
    row("aten::narrow_copy.out", narrow_copy),
    row("aten::native_layer_norm.out", layer_norm),
    each("aten::ne.Scalar_out", binary_scalar, kNe),
    each("aten::ne.Tensor_out", binary_tensor, kNe),
    each("aten::neg.out", unary, kernels::UnaryOp::kNeg),
    row("aten::nonzero.out", nonzero),
    row("aten::ones.out", fill_constant, 1),
    row("aten::permute_copy.out", permute),
    each("aten::pow.Scalar_out", pow_scalar_base),
    each("aten::pow.Tensor_Scalar_out", binary_scalar, kPow),
    each("aten::pow.Tensor_Tensor_out", binary_tensor, kPow),
    each("aten::reciprocal.out", unary, kernels::UnaryOp::kReciprocal),
    each("aten::relu.out", unary, kernels::UnaryOp::kRelu),
    each("aten::remainder.Scalar_out", binary_scalar, kRemainder),
    each("aten::remainder.Tensor_out", binary_tensor, kRemainder),
    row("aten::repeat.out", repeat),
    each("aten::round.out", unary, kernels::UnaryOp::kRound),
    each("aten::rsqrt.out", unary, kernels::UnaryOp::kRsqrt),
    each("aten::rsub.Scalar_out", add_scalar_alpha, kReverseSub),
    row("aten::scalar_tensor.out", scalar_tensor),
    row("aten::scatter.src_out", scatter_src),
    row("aten::select_copy.int_out", select_index),
    row("aten::select_scatter.out", select_scatter),
    each("aten::sigmoid.out", unary, kernels::UnaryOp::kSigmoid),
    each("aten::sign.out", unary, kernels::UnaryOp::kSign),
    each("aten::sin.out", unary, kernels::UnaryOp::kSin),
    each("aten::sinh.out", unary, kernels::UnaryOp::kSinh),
    row("aten::slice_copy.Tensor_out", slice),
    row("aten::slice_scatter.out", slice_scatter),
    row("aten::split_copy.Tensor_out", split_size),
    row("aten::split_with_sizes_copy.out", split_with_sizes),
    each("aten::sqrt.out", unary, kernels::UnaryOp::kSqrt),
    each("aten::squeeze_copy.dim_out", squeeze_dim),
    each("aten::squeeze_copy.dims_out", squeeze_dims),
    row("aten::stack.out", stack),
    each("aten::sub.Scalar_out", add_scalar_alpha, kSub),
    each("aten::sub.out", add_alpha, kSub),
    row("aten::sum.IntList_out", reduce_dims_dtype, kernels::Reduction::kSum),
    row("aten::sym_numel", sym_numel),
    row("aten::sym_size.int", sym_size),
    row("aten::t_copy.out", t_copy),
    each("aten::tan.out", unary, kernels::UnaryOp::kTan),
    each("aten::tanh.out", unary, kernels::UnaryOp::kTanh),
    row("aten::topk.values", topk),
    row("aten::transpose_copy.int_out", transpose),
    each("aten::trunc.out", unary, kernels::UnaryOp::kTrunc),
    row("aten::unbind_copy.int_out", unbind),
    each("aten::unsqueeze_copy.out", unsqueeze),
    each("aten::view_copy.out", view_copy),
    each("aten::where.self_out", where),
    row("aten::zeros.out", fill_constant, 0),
    each("dim_order_ops::_clone_dim_order.out", dim_order_copy),
    row("dim_order_ops::_to_dim_order_copy.out", to_dim_order_copy, 3),
    row("executorch_prim::add.Scalar", scalar_binary, kernels::ScalarOp::kAdd),
    row("executorch_prim::ceil.Scalar", scalar_unary, kernels::ScalarOp::kCeil),
    row("executorch_prim::eq.Scalar", scalar_binary, kernels::ScalarOp::kEq),
    row("executorch_prim::et_view.default", et_view, 0, Kernel::Memory::kView),
    row("executorch_prim::floordiv.Scalar", scalar_binary, kernels::ScalarOp::kFloorDiv),
    row("executorch_prim::floordiv.int", scalar_binary, kernels::ScalarOp::kFloorDiv),
    row("executorch_prim::ge.Scalar", scalar_binary, kernels::ScalarOp::kGe),
    row("executorch_prim::gt.Scalar", scalar_binary, kernels::ScalarOp::kGt),
    row("executorch_prim::le.Scalar", scalar_binary, kernels::ScalarOp::kLe),
    row("executorch_prim::lt.Scalar", scalar_binary, kernels::ScalarOp::kLt),
    row("executorch_prim::mod.Scalar", scalar_binary, kernels::ScalarOp::kMod),
    row("executorch_prim::mod.int", scalar_binary, kernels::ScalarOp::kMod),
    row("executorch_prim::mul.Scalar", scalar_binary, kernels::ScalarOp::kMul),
    row("executorch_prim::neg.Scalar", scalar_unary, kernels::ScalarOp::kNeg),
    row("executorch_prim::round.Scalar", scalar_unary, kernels::ScalarOp::kRound),
    row("executorch_prim::sub.Scalar", scalar_binary, kernels::ScalarOp::kSub),
    row("executorch_prim::sym_float.Scalar", scalar_unary, kernels::ScalarOp::kToFloat),
    row("executorch_prim::sym_int.Scalar", scalar_unary, kernels::ScalarOp::kToInt),
    row("executorch_prim::sym_ite.Scalar", scalar_if),
    row("executorch_prim::sym_max.Scalar", scalar_binary, kernels::ScalarOp::kMax),
    row("executorch_prim::sym_min.Scalar", scalar_binary, kernels::ScalarOp::kMin),
    row("executorch_prim::sym_not.Scalar", scalar_unary, kernels::ScalarOp::kNot),
    row("executorch_prim::truediv.Scalar", scalar_binary, kernels::ScalarOp::kTrueDiv),
    row("executorch_prim::trunc.Scalar", scalar_unary, kernels::ScalarOp::kTrunc),
    row("ferry::block_embedding.out", block_embedding),
    row("ferry::block_linear.out", block_linear),
    row("ferry::block_linears.out", block_linears),
    row("llama::custom_sdpa.out", custom_sdpa),
    each("llama::fallback.out", same_copy, 1),
    row("llama::gated_delta_rule.out", gated_delta_rule),
    row("llama::sdpa_with_kv_cache.out", sdpa_with_kv_cache),
    row("llama::update_cache.out", update_cache),
    row("llama::update_cache_with_indices.out", update_cache_indices),
    row("quantized_decomposed::choose_qparams_per_token_asymmetric.out", choose_row_encodings),
    row("quantized_decomposed::dequantize_per_tensor.out", dequantize),
    row("quantized_decomposed::dequantize_per_token.out", dequantize_rows),
    row("quantized_decomposed::embedding_2bit.dtype_out", embedding_codes_dtype, 2),
    row("quantized_decomposed::embedding_2bit.out", embedding_codes, 2),
    row("quantized_decomposed::embedding_4bit.dtype_out", embedding_codes_dtype, 4),
    row("quantized_decomposed::embedding_4bit.out", embedding_codes, 4),
    row("quantized_decomposed::embedding_byte.dtype_out", embedding_codes_dtype, 8),
    row("quantized_decomposed::embedding_byte.out", embedding_codes, 8),
    row("quantized_decomposed::mixed_linear.out", mixed_linear),
    row("quantized_decomposed::mixed_mm.out", mixed_mm),
    row("quantized_decomposed::quantize_per_tensor.out", quantize),
    row("quantized_decomposed::quantize_per_token.out", quantize_rows),
};

constexpr bool is_sorted_by_name() {
  for (size_t i = 1; i < std::size(kKernels); ++i) {
    if (!(kKernels[i - 1].name < kKernels[i].name)) return false;
  }
  return true;
}
static_assert(is_sorted_by_name(), "kKernels is searched by bisection");

}  // namespace

const Kernel* find_kernel(std::string_view full_name) {
  const Kernel* end = std::end(kKernels);
  const Kernel* found = std::lower_bound(
      std::begin(kKernels), end, full_name,
      [](const Kernel& kernel, std::string_view name) { return kernel.name < name; });
  return found != end && found->name == full_name ? found : nullptr;
}

std::span<const Kernel> all_kernels() { return kKernels; }

}  // namespace ferry::kernels
