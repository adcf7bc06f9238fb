// The table of operators, and find_op_schema, which searches it.
#include "formats/pte/op_schema.h"

#include <unordered_map>

namespace ferry::pte {

namespace {

// "arguments RESULT outs". An argument is a kind and a name:
//   T tensor   T[] tensor list   T?[] list of optional tensors   i int   i[] int list   f float
//   b bool     S scalar          s string   f[] float list
// A ? after the kind allows None, a ! marks an input that the operator writes too. RESULT is one of
//   >   the out, or the list of several outs, is repeated after them
//   ->  nothing is repeated
//   >>  the operator has no out; the argument named is repeated
struct Row {
  std::string_view signature;
  std::string_view operators;  // separated by spaces
};

constexpr Row kRows[] = {
    // aten
    {"T self > T out",
     "aten::abs.out aten::acos.out aten::acosh.out aten::alias_copy.out aten::any.all_out "
     "aten::asin.out aten::asinh.out aten::atan.out aten::atanh.out aten::bitwise_not.out "
     "aten::ceil.out aten::cos.out aten::cosh.out aten::detach_copy.out aten::erf.out "
     "aten::exp.out aten::expm1.out aten::floor.out aten::isinf.out aten::isnan.out "
     "aten::lift_fresh_copy.out aten::max.unary_out aten::min.unary_out aten::log.out "
     "aten::log10.out aten::log1p.out aten::log2.out "
     "aten::logical_not.out aten::neg.out aten::nonzero.out aten::reciprocal.out "
     "aten::relu.out aten::round.out "
     "aten::rsqrt.out aten::sigmoid.out aten::sign.out aten::sin.out aten::sinh.out "
     "aten::sqrt.out aten::t_copy.out aten::tan.out aten::tanh.out aten::trunc.out "
     "aten::view_as_real_copy.out"},
    {"T self, T other > T out",
     "aten::atan2.out aten::bitwise_and.Tensor_out aten::bitwise_left_shift.Tensor_out "
     "aten::bitwise_or.Tensor_out aten::bitwise_right_shift.Tensor_out "
     "aten::bitwise_xor.Tensor_out aten::div.out aten::eq.Tensor_out aten::floor_divide.out "
     "aten::fmod.Tensor_out aten::ge.Tensor_out aten::gt.Tensor_out aten::le.Tensor_out "
     "aten::logical_and.out aten::logical_or.out aten::logical_xor.out aten::lt.Tensor_out "
     "aten::maximum.out aten::minimum.out aten::mul.out aten::ne.Tensor_out "
     "aten::remainder.Tensor_out"},
    {"T self, S other > T out",
     "aten::bitwise_and.Scalar_out aten::bitwise_left_shift.Tensor_Scalar_out "
     "aten::bitwise_or.Scalar_out aten::bitwise_right_shift.Tensor_Scalar_out "
     "aten::bitwise_xor.Scalar_out "
     "aten::div.Scalar_out aten::eq.Scalar_out aten::fmod.Scalar_out aten::ge.Scalar_out "
     "aten::gt.Scalar_out aten::le.Scalar_out aten::lt.Scalar_out aten::mul.Scalar_out "
     "aten::ne.Scalar_out aten::remainder.Scalar_out"},
    {"T self, S other, S alpha > T out",
     "aten::add.Scalar_out aten::rsub.Scalar_out aten::sub.Scalar_out"},
    {"T self, i dim, b half_to_float > T out", "aten::_log_softmax.out aten::_softmax.out"},
    {"T self, T other, S alpha > T out", "aten::add.out aten::sub.out"},
    {"T self, i[] dim, b keepdim > T out", "aten::amax.out aten::amin.out"},
    {"T self, i[] output_size > T out", "aten::_adaptive_avg_pool2d.out"},
    {"T x1, T x2, f p, i? compute_mode > T out", "aten::_cdist_forward.out"},
    {"T self, i[] dim, i normalization, i last_dim_size > T out", "aten::_fft_c2r.out"},
    {"T self, i[] dim, i normalization, b onesided > T out", "aten::_fft_r2c.out"},
    {"T self, f p > T out", "aten::_pdist_forward.out"},
    {"T input, T? weight, T? bias, T running_mean, T running_var, f momentum, f eps > T out0, T "
     "out1, T out2",
     "aten::_native_batch_norm_legit_no_training.out"},
    {"T input, T? weight, T? bias, b training, f momentum, f eps > T out, T save_mean, T "
     "save_invstd",
     "aten::_native_batch_norm_legit.no_stats_out"},
    {"T self, i[] output_size, b align_corners, f? scales_h, f? scales_w > T out",
     "aten::_upsample_bilinear2d_aa.out"},
    {"T self, i[] size, i[] stride, i? storage_offset > T out", "aten::as_strided_copy.out"},
    {"T self, i[] kernel_size, i[] stride, i[] padding, b ceil_mode, b count_include_pad, i? "
     "divisor_override > T out",
     "aten::avg_pool2d.out"},
    {"T self, T? min, T? max > T out", "aten::clamp.Tensor_out"},
    {"T self, i offset, i dim1, i dim2 > T out", "aten::diagonal_copy.out"},
    {"T self, S other, s? rounding_mode > T out", "aten::div.Scalar_mode_out"},
    {"T self, T other, s? rounding_mode > T out", "aten::div.out_mode"},
    {"T self, S alpha, S scale, S input_scale > T out", "aten::elu.out"},
    {"T self, i[] dims > T out", "aten::flip.out"},
    {"T self, i dim > T out", "aten::glu.out"},
    {"T input, T grid, i interpolation_mode, i padding_mode, b align_corners > T out",
     "aten::grid_sampler_2d.out"},
    {"T self, S min_val, S max_val > T out", "aten::hardtanh.out"},
    {"T self, S negative_slope > T out", "aten::leaky_relu.out"},
    {"T self, f? eps > T out", "aten::logit.out"},
    {"T self, T mask, T source > T out", "aten::masked_scatter.out"},
    {"T self, T mask > T out", "aten::masked_select.out"},
    {"T self, i[] kernel_size, i[] stride, i[] padding, i[] dilation, b ceil_mode > T out, T "
     "indices",
     "aten::max_pool2d_with_indices.out"},
    {"T self, i? dtype > T out", "aten::mean.dtype_out aten::prod.out"},
    {"T input, T? weight, T? bias, i N, i C, i HxW, i group, f eps > T out0, T out1, T out2",
     "aten::native_group_norm.out"},
    {"T self, i factor > T out", "aten::pixel_shuffle.out aten::pixel_unshuffle.out"},
    {"T self, i dim, b keepdim, i? dtype > T out", "aten::prod.int_out"},
    {"T self, i[] padding > T out",
     "aten::reflection_pad1d.out aten::reflection_pad2d.out aten::reflection_pad3d.out "
     "aten::replication_pad1d.out aten::replication_pad2d.out aten::replication_pad3d.out"},
    {"T repeats, i? output_size > T out", "aten::repeat_interleave.Tensor_out"},
    {"T self, i[] shifts, i[] dims > T out", "aten::roll.out"},
    {"T self, i dim, T index, S value > T out", "aten::scatter.value_out"},
    {"T self, i dim, T index, T src > T out", "aten::scatter_add.out"},
    {"T self, i diagonal > T out", "aten::tril.out"},
    {"T self, i dimension, i size, i step > T out", "aten::unfold_copy.out"},
    {"T input, i[]? output_size, b align_corners, f[]? scale_factors > T out",
     "aten::upsample_bilinear2d.vec_out"},
    {"T input, i[]? output_size, f[]? scale_factors > T out", "aten::upsample_nearest2d.vec_out"},
    {"T self, i[]? dim, b unbiased, b keepdim > T out", "aten::var.out"},
    {"T self, i[]? dim, S? correction, b keepdim > T out", "aten::var.correction_out"},
    {"T self, i[]? dim, S? correction, b keepdim > T out0, T out1",
     "aten::var_mean.correction_out"},
    {"T self, i? dim, b keepdim > T out", "aten::argmax.out aten::argmin.out"},
    {"T self, T mat2 > T out", "aten::bmm.out aten::mm.out"},
    {"T[] tensors, i dim > T out", "aten::cat.out aten::stack.out"},
    {"T self, i[]? dim, b keepdim, i? dtype > T out", "aten::mean.out aten::sum.IntList_out"},
    {"i[] size > T out", "aten::ones.out aten::zeros.out"},
    {"T self, i dim > T out", "aten::squeeze_copy.dim_out aten::unsqueeze_copy.out"},
    {"T self, b non_blocking, i? memory_format > T out", "aten::_to_copy.out"},
    {"T self, T mat1, T mat2, S beta, S alpha > T out", "aten::addmm.out"},
    {"T self, i[]? dim, b keepdim > T out", "aten::any.dims_out"},
    {"T self, i dim, b keepdim > T out", "aten::any.out"},
    {"S end > T out", "aten::arange.out"},
    {"S start, S end, S step > T out", "aten::arange.start_out"},
    {"T self, S? min, S? max > T out", "aten::clamp.out"},
    {"T self, i? memory_format > T out", "aten::clone.out"},
    {"T self, i[] pad, S value > T out", "aten::constant_pad_nd.out"},
    {"T input, T weight, T? bias, i[] stride, i[] padding, i[] dilation, b transposed, i[] "
     "output_padding, i groups > T out",
     "aten::convolution.out"},
    {"T self, T src, b non_blocking > T out", "aten::copy.out"},
    {"T self, i dim, i? dtype > T out", "aten::cumsum.out"},
    {"T weight, T indices, i padding_idx, b scale_grad_by_freq, b sparse > T out",
     "aten::embedding.out"},
    {"i[] size, i? memory_format > T out", "aten::empty.out"},
    {"T self, i[] size, b implicit > T out", "aten::expand_copy.out"},
    {"T self, S value > T out", "aten::fill.Scalar_out"},
    {"T self, T value > T out", "aten::fill.Tensor_out"},
    {"i[] size, S fill_value > T out", "aten::full.out"},
    {"T self, S fill_value, i? memory_format > T out", "aten::full_like.out"},
    {"T self, i dim, T index, b sparse_grad > T out", "aten::gather.out"},
    {"T self, s approximate > T out", "aten::gelu.out"},
    {"T self, T?[] indices > T out", "aten::index.Tensor_out"},
    {"T self, T?[] indices, T values, b accumulate > T out", "aten::index_put.out"},
    {"T self, i dim, T index > T out", "aten::index_select.out"},
    {"T input, T weight, T? bias > T out", "aten::linear.out"},
    {"T self, T mask, S value > T out", "aten::masked_fill.Scalar_out"},
    {"T self, i dim, b keepdim > T max, T max_values", "aten::max.dim_max"},
    {"T self, i dim, b keepdim > T min, T min_indices", "aten::min.dim_min"},
    {"T self, i dim, i start, i length > T out", "aten::narrow_copy.out"},
    {"T input, i[] normalized_shape, T? weight, T? bias, f eps > T out0, T out1, T out2",
     "aten::native_layer_norm.out"},
    {"T self, i[] dims > T out", "aten::permute_copy.out"},
    {"S self, T exponent > T out", "aten::pow.Scalar_out"},
    {"T self, S exponent > T out", "aten::pow.Tensor_Scalar_out"},
    {"T self, T exponent > T out", "aten::pow.Tensor_Tensor_out"},
    {"T self, i[] repeats > T out", "aten::repeat.out"},
    {"S s > T out", "aten::scalar_tensor.out"},
    {"T self, i dim, T index, T src > T out", "aten::scatter.src_out"},
    {"T self, i dim, i index > T out", "aten::select_copy.int_out"},
    {"T self, T src, i dim, i index > T out", "aten::select_scatter.out"},
    {"T self, i dim, i? start, i? end, i step > T out", "aten::slice_copy.Tensor_out"},
    {"T self, T src, i dim, i? start, i? end, i step > T out", "aten::slice_scatter.out"},
    {"T self, i split_size, i dim > T[] out", "aten::split_copy.Tensor_out"},
    {"T self, i[] split_sizes, i dim > T[] out", "aten::split_with_sizes_copy.out"},
    {"T self, i[] dim > T out", "aten::squeeze_copy.dims_out"},
    {"T self, i k, i dim, b largest, b sorted > T values, T indices", "aten::topk.values"},
    {"T self, i dim0, i dim1 > T out", "aten::transpose_copy.int_out"},
    {"T self, i dim > T[] out", "aten::unbind_copy.int_out"},
    {"T self, i[] size > T out", "aten::view_copy.out"},
    {"T condition, T self, T other > T out", "aten::where.self_out"},

    // dim_order_ops
    {"T self, b non_blocking, i[]? dim_order > T out", "dim_order_ops::_clone_dim_order.out"},
    {"i[] size, i[]? dim_order > T out", "dim_order_ops::_empty_dim_order.out"},
    {"T self, b non_blocking, i[]? dim_order > T out", "dim_order_ops::_to_dim_order_copy.out"},

    // The operator writes its first argument, which is also the result.
    {"T! self, T src, b non_blocking >> self", "aten::copy_"},
    {"T! self, T?[] indices, T values, b accumulate >> self", "aten::index_put_"},

    // The operator is symbolic, so the result is not repeated.
    {"T self, i dim -> i out", "aten::sym_size.int"},
    {"T self -> i out", "aten::sym_numel"},
    {"T self -> S out", "aten::_local_scalar_dense"},
    {"T self, i[] size -> T out", "executorch_prim::et_view.default"},
    {"T! copy_to, T copy_from, i index -> ", "executorch_prim::et_copy_index.tensor"},
    {"S a, S b -> S out",
     "executorch_prim::add.Scalar executorch_prim::eq.Scalar executorch_prim::floordiv.Scalar "
     "executorch_prim::floordiv.int executorch_prim::ge.Scalar executorch_prim::gt.Scalar "
     "executorch_prim::le.Scalar executorch_prim::lt.Scalar executorch_prim::mod.Scalar "
     "executorch_prim::mod.int executorch_prim::mul.Scalar executorch_prim::sub.Scalar "
     "executorch_prim::sym_max.Scalar executorch_prim::sym_min.Scalar "
     "executorch_prim::truediv.Scalar"},
    {"S a -> S out",
     "executorch_prim::ceil.Scalar executorch_prim::neg.Scalar executorch_prim::round.Scalar "
     "executorch_prim::sym_float.Scalar executorch_prim::sym_int.Scalar "
     "executorch_prim::sym_not.Scalar executorch_prim::trunc.Scalar"},
    {"S condition, S a, S b -> S out", "executorch_prim::sym_ite.Scalar"},

    // llama
    {"T query, T key, T value, i start_pos, T? attn_mask, f dropout_p, b is_causal, f? scale > T "
     "out",
     "llama::custom_sdpa.out"},
    {"T query, T key, T value, T! key_cache, T! value_cache, i start_pos, i seq_len, T? attn_mask, "
     "f dropout_p, b is_causal, f? scale > T out",
     "llama::sdpa_with_kv_cache.out"},
    {"T value, T! cache, i start_pos > T out", "llama::update_cache.out"},
    {"T value, T! cache, i start_pos, T indices > T out", "llama::update_cache_with_indices.out"},
    {"T query, T key, T value, i start_pos, T? attn_mask, f dropout_p, b is_causal, f? scale, "
     "T? q_zero_points, T? q_scales, T? k_zero_points, T? k_scales, T? v_zero_points, T? v_scales, "
     "b is_seq_at_dim_2 > T out",
     "llama::custom_quantized_sdpa.out"},
    {"T query, T key, T value, T decay, T beta, T initial_state > T out, T final_state_out",
     "llama::channelwise_gated_delta_rule.out llama::gated_delta_rule.out"},
    {"T input > T out", "llama::fallback.out llama::fast_hadamard_transform.out"},

    // preprocess
    {"T input, i tile_size > T out", "preprocess::tile_crop.out"},

    // quantized_decomposed
    {"T input, f scale, i zero_point, i quant_min, i quant_max, i dtype > T out",
     "quantized_decomposed::quantize_per_tensor.out"},
    {"T input, T scale, T zero_point, i quant_min, i quant_max, i dtype > T out",
     "quantized_decomposed::quantize_per_tensor.Tensor_out"},
    {"T input, f scale, i zero_point, i quant_min, i quant_max, i dtype, i? out_dtype > T out",
     "quantized_decomposed::dequantize_per_tensor.out"},
    {"T input, T scale, T zero_point, i quant_min, i quant_max, i dtype, i? out_dtype > T out",
     "quantized_decomposed::dequantize_per_tensor.Tensor_out"},
    {"T input, T scales, T zero_points, i axis, i quant_min, i quant_max, i dtype > T out",
     "quantized_decomposed::quantize_per_channel.out"},
    {"T input, T scales, T? zero_points, i axis, i quant_min, i quant_max, i dtype, i? out_dtype "
     "> T out",
     "quantized_decomposed::dequantize_per_channel.out"},
    {"T input, i quant_min, i quant_max, f eps, i dtype > T scale_out, T zero_point_out",
     "quantized_decomposed::choose_qparams.Tensor_out"},
    {"T input, i dtype > T scale_out, T zero_point_out",
     "quantized_decomposed::choose_qparams_per_token_asymmetric.out"},
    {"T input, T scales, T zero_points, i quant_min, i quant_max, i dtype > T out",
     "quantized_decomposed::quantize_per_token.out"},
    {"T input, T scales, T zero_points, i quant_min, i quant_max, i dtype, i output_dtype > T out",
     "quantized_decomposed::dequantize_per_token.out"},
    {"T weight, T weight_scales, T? weight_zero_points, i quant_min, i quant_max, T indices > T "
     "out",
     "quantized_decomposed::embedding_byte.out quantized_decomposed::embedding_4bit.out "
     "quantized_decomposed::embedding_2bit.out"},
    {"T weight, T weight_scales, T? weight_zero_points, i quant_min, i quant_max, T indices, "
     "i? dtype > T out",
     "quantized_decomposed::embedding_byte.dtype_out "
     "quantized_decomposed::embedding_4bit.dtype_out "
     "quantized_decomposed::embedding_2bit.dtype_out"},
    {"T input, T weight, T weight_scales, T? weight_zero_points, i? dtype > T out",
     "quantized_decomposed::mixed_linear.out"},
    {"T input, T weight, T weight_scales, T? weight_zero_points > T out",
     "quantized_decomposed::mixed_mm.out"},

    // operators that Ferry alone has, in programs that stay in memory
    {"T input, T blocks, s encoding > T out", "ferry::block_linear.out"},
    {"T input, T[] blocks, s encodings > T[] out", "ferry::block_linears.out"},
    {"T blocks, T indices, i columns, s encoding > T out", "ferry::block_embedding.out"},
};

constexpr struct {
  std::string_view notation;
  ArgKind kind;
} kKinds[] = {
    {"T", ArgKind::kTensor},
    {"T[]", ArgKind::kTensorList},
    {"T?[]", ArgKind::kOptionalTensorList},
    {"i", ArgKind::kInt},
    {"i[]", ArgKind::kIntList},
    {"f", ArgKind::kFloat},
    {"b", ArgKind::kBool},
    {"S", ArgKind::kScalar},
    {"s", ArgKind::kString},
    {"f[]", ArgKind::kFloatList},
};

// Returns the text before the first `separator`. `rest` becomes the text after it, or empty if
// there is none.
std::string_view take(std::string_view& rest, std::string_view separator) {
  const size_t end = rest.find(separator);
  const std::string_view head = rest.substr(0, end);
  rest = end == std::string_view::npos ? std::string_view() : rest.substr(end + separator.size());
  return head;
}

ArgSchema parse_arg(std::string_view text, bool out) {
  std::string_view kind = take(text, " ");
  ArgSchema arg{std::string(text), ArgKind::kTensor, false, out, false};
  for (; kind.ends_with('?') || kind.ends_with('!'); kind.remove_suffix(1)) {
    (kind.ends_with('?') ? arg.optional : arg.mutated) = true;
  }
  for (const auto& row : kKinds) {
    if (row.notation == kind) arg.kind = row.kind;
  }
  return arg;
}

void parse_args(std::string_view text, bool out, std::vector<ArgSchema>& args) {
  while (!text.empty()) args.push_back(parse_arg(take(text, ", "), out));
}

// Parses the arguments and the result style of one signature, without a name.
OpSchema parse_signature(std::string_view text) {
  OpSchema schema;
  if (text.find(" >> ") != std::string_view::npos) {
    schema.result = ResultStyle::kRepeatSelf;
    parse_args(take(text, " >> "), false, schema.args);
    return schema;
  }
  const bool trailing = text.find(" -> ") != std::string_view::npos;
  schema.result = trailing ? ResultStyle::kTrailingOut : ResultStyle::kRepeatOut;
  parse_args(take(text, trailing ? " -> " : " > "), false, schema.args);
  parse_args(text, true, schema.args);
  return schema;
}

using Table = std::unordered_map<std::string, OpSchema>;

Table parse_table() {
  Table table;
  for (const Row& row : kRows) {
    const OpSchema signature = parse_signature(row.signature);
    std::string_view names = row.operators;
    while (!names.empty()) {
      const std::string_view full = take(names, " ");
      OpSchema schema = signature;
      std::string_view overload = full;
      schema.name = take(overload, ".");
      schema.overload = overload;
      table.emplace(full, std::move(schema));
    }
  }
  return table;
}

}  // namespace

const OpSchema* find_op_schema(std::string_view full_name) {
  static const Table table = parse_table();
  const auto found = table.find(std::string(full_name));
  return found == table.end() ? nullptr : &found->second;
}

}  // namespace ferry::pte
