// Every kernel, by the file that defines it. kernel_table.cc lists the operators that they serve.
#pragma once

#include "kernels/kernel_table.h"

namespace ferry::kernels {

// -- arithmetic.cc: Call::variant is a BinaryOp
enum class BinaryOp : int {
  kAdd,
  kSub,
  kReverseSub,
  kMul,
  kDiv,
  kFloorDiv,
  kRemainder,
  kFmod,
  kMaximum,
  kMinimum,
  kPow,
  kAtan2,
  kBitAnd,
  kBitOr,
  kBitXor,
  kEq,
  kNe,
  kLt,
  kLe,
  kGt,
  kGe,
  kLogicalAnd,
  kLogicalOr,
  kLogicalXor,
  kTruncDiv,
  kShiftLeft,
  kShiftRight,
};
Status binary_tensor(const Call& call);     // self, other -> out
Status binary_scalar(const Call& call);     // self, Scalar other -> out
Status pow_scalar_base(const Call& call);   // Scalar self, exponent -> out
Status add_alpha(const Call& call);         // self, other, alpha -> out
Status add_scalar_alpha(const Call& call);  // self, Scalar other, alpha -> out

// -- unary.cc: Call::variant is a UnaryOp
enum class UnaryOp : int {
  kNeg,
  kAbs,
  kSign,
  kRelu,
  kBitNot,
  kLogicalNot,
  kIsNan,
  kIsInf,
  kCeil,
  kFloor,
  kRound,
  kTrunc,
  kExp,
  kExpm1,
  kLog,
  kLog1p,
  kLog2,
  kLog10,
  kSqrt,
  kRsqrt,
  kReciprocal,
  kSigmoid,
  kTanh,
  kSin,
  kCos,
  kTan,
  kSinh,
  kCosh,
  kAsin,
  kAcos,
  kAtan,
  kAsinh,
  kAcosh,
  kAtanh,
  kErf,
  kGelu,
  kGeluTanh,
};
Status unary(const Call& call);  // self -> out
Status gelu(const Call& call);   // self, approximate -> out

// -- select.cc: elementwise choice and conversion
Status where(const Call& call);         // condition, self, other -> out
Status clamp(const Call& call);         // self, min?, max? -> out
Status masked_fill(const Call& call);   // self, mask, Scalar value -> out
Status copy(const Call& call);          // self, src, non_blocking -> out: src broadcast to self
Status copy_inplace(const Call& call);  // self, src, non_blocking, self
Status to_copy(const Call& call);       // self, ... -> out at args[variant], in its dtype
Status to_dim_order_copy(const Call& call);  // arguments as for dim_order_copy -> out, in its dtype

// -- fill.cc
Status full(const Call& call);           // size, Scalar -> out
Status fill_constant(const Call& call);  // size, [memory_format at variant/2] -> out = variant & 1
Status full_like(const Call& call);      // self, Scalar, memory_format -> out
Status fill_scalar(const Call& call);    // self, Scalar -> out
Status fill_tensor(const Call& call);    // self, value -> out
Status scalar_tensor(const Call& call);  // Scalar -> out
Status arange(const Call& call);         // end -> out
Status arange_start(const Call& call);   // start, end, step -> out

// -- shape.cc: the elements keep their order
Status et_view(const Call& call);    // self, size -> out, sharing memory
Status view_copy(const Call& call);  // self, size -> out
Status same_copy(const Call& call);  // self, ... -> out at args[variant], same shape and dtype
// self, non_blocking, dim_order? -> out, of the same dtype. All tensors are row-major here.
Status dim_order_copy(const Call& call);
// Refuses a list of dimensions in this argument that is no permutation of those of argument 0.
Status require_dim_order(const Call& call, size_t argument);
Status unsqueeze(const Call& call);     // self, dim -> out
Status squeeze_dim(const Call& call);   // self, dim -> out
Status squeeze_dims(const Call& call);  // self, dims -> out

// -- rearrange.cc: elements are moved
Status permute(const Call& call);           // self, dims -> out
Status transpose(const Call& call);         // self, dim0, dim1 -> out
Status t_copy(const Call& call);            // self -> out
Status expand(const Call& call);            // self, size, implicit -> out
Status repeat(const Call& call);            // self, repeats -> out
Status slice(const Call& call);             // self, dim, start?, end?, step -> out
Status narrow_copy(const Call& call);       // self, dim, start, length -> out
Status select_index(const Call& call);      // self, dim, index -> out
Status slice_scatter(const Call& call);     // self, src, dim, start?, end?, step -> out
Status select_scatter(const Call& call);    // self, src, dim, index -> out
Status cat(const Call& call);               // tensors, dim -> out
Status stack(const Call& call);             // tensors, dim -> out
Status split_with_sizes(const Call& call);  // self, sizes, dim -> outs
Status split_size(const Call& call);        // self, size, dim -> outs
Status unbind(const Call& call);            // self, dim -> outs
Status constant_pad(const Call& call);      // self, pad, Scalar -> out

// -- reduce.cc: Call::variant is a Reduction
enum class Reduction : int { kSum, kMean, kAny, kMax, kMin, kArgMax, kArgMin, kProduct };
Status reduce_dims_dtype(const Call& call);  // self, dims?, keepdim, dtype? -> out
Status reduce_dims(const Call& call);        // self, dims?, keepdim -> out
Status reduce_dim(const Call& call);         // self, dim?, keepdim -> out
Status reduce_all(const Call& call);         // self -> out
Status reduce_all_dtype(const Call& call);   // self, dtype? -> out
Status reduce_dim_dtype(const Call& call);   // self, dim, keepdim, dtype? -> out
// self, dims?, unbiased or (variant 1 and 2) correction?, keepdim -> variance; variant 2: and mean
Status variance(const Call& call);
Status reduce_with_index(const Call& call);  // self, dim, keepdim -> values, indices

// -- rows.cc: along one dimension
Status softmax(const Call& call);     // self, dim, half_to_float -> out; variant 1 is log_softmax
Status cumsum(const Call& call);      // self, dim, dtype? -> out
Status layer_norm(const Call& call);  // input, shape, weight?, bias?, eps -> out, mean, rstd
Status topk(const Call& call);        // self, k, dim, largest, sorted -> values, indices

// -- indexing.cc
Status embedding(const Call& call);          // weight, indices, ... -> out
Status index(const Call& call);              // self, indices -> out
Status index_put(const Call& call);          // self, indices, values, accumulate -> out
Status index_put_inplace(const Call& call);  // self, indices, values, accumulate, self
Status nonzero(const Call& call);            // self -> out: i64 [n, rank]
Status index_select(const Call& call);       // self, dim, index -> out
Status gather(const Call& call);             // self, dim, index, sparse_grad -> out
Status scatter_src(const Call& call);        // self, dim, index, src -> out
Status scatter_value(const Call& call);      // self, dim, index, Scalar -> out
Status scatter_add(const Call& call);        // self, dim, index, src -> out
Status masked_scatter(const Call& call);     // self, mask, source -> out
Status masked_select(const Call& call);      // self, mask -> out: [n]

// -- scalars.cc: Call::variant is a ScalarOp for scalar_unary and scalar_binary
enum class ScalarOp : int {
  kAdd,
  kSub,
  kMul,
  kTrueDiv,
  kFloorDiv,
  kMod,
  kMax,
  kMin,
  kEq,
  kLt,
  kLe,
  kGt,
  kGe,
  kNeg,
  kNot,
  kToFloat,
  kToInt,
  kRound,
  kCeil,
  kFloor,
  kTrunc,
};
Status sym_size(const Call& call);      // self, dim -> Int
Status sym_numel(const Call& call);     // self -> Int
Status local_scalar(const Call& call);  // self -> Scalar
Status scalar_binary(const Call& call);
Status scalar_unary(const Call& call);
Status scalar_if(const Call& call);  // condition, a, b -> out

// -- linear.cc
Status linear(const Call& call);  // input, weight, bias? -> out
Status mm(const Call& call);      // self, mat2 -> out
Status bmm(const Call& call);     // self, mat2 -> out
Status addmm(const Call& call);   // self, mat1, mat2, beta, alpha -> out

// -- attention.cc
Status update_cache(const Call& call);           // value, cache, start_pos -> out (unused)
Status update_cache_indices(const Call& call);   // value, cache, start_pos, indices -> out (unused)
Status custom_sdpa(const Call& call);            // query, key, value, start_pos, mask?, ... -> out
Status custom_quantized_sdpa(const Call& call);  // the same of i8 codes, with scales of their rows
Status sdpa_with_kv_cache(const Call& call);
// Computes custom_sdpa with caches in their stored dtype. Its arguments are followed, for keys and
// then for values, by the buffer [1,context,KV,D], the scales and zero points of codes or None, and
// start and end of the positions. Programs cannot contain this operator.
Status stored_sdpa(const Call& call);
// The operators of a cache [1,context,KV,D] that is held as CacheCodes, not in its buffer. Memory
// and bits of the codes follow the arguments of update_cache, update_cache_with_indices and
// slice_copy along dimension 1. Those of custom_sdpa are followed, for keys and then for values, by
// memory, bits, the buffer, and start and end of the positions. Programs cannot contain them.
Status coded_update_cache(const Call& call);
Status coded_update_cache_indices(const Call& call);
Status coded_slice_copy(const Call& call);
Status coded_sdpa(const Call& call);
Status gated_delta_rule(const Call& call);

// -- rms_norm.cc
// Computes x * rsqrt(mean(x^2) + eps) * weight over the last dimension with the bits of mul.out,
// mean.out, add.out, rsqrt.out, mul.out, _to_copy.out and mul.out. eps is an f32 tensor of one
// value. The product is rounded to the dtype of the weight before it is multiplied with that.
// Programs cannot contain this operator.
Status rms_norm_steps(const Call& call);  // x, eps, weight? -> out

// -- activations.cc
// Computes activation(gate) * up in f32, where the variant is a GateActivation, with the bits of
// _to_copy.out of both to f32, of sigmoid.out and mul.out or gelu.out, of mul.out and of
// _to_copy.out to the dtype of `out`. Programs cannot contain this operator.
Status gated_product(const Call& call);  // gate, up -> out

// -- quantize.cc: one scale for the whole tensor, or one for each row of the last dimension
Status quantize(const Call& call);       // self, scale, zero_point, min, max, dtype -> out
Status dequantize(const Call& call);     // self, scale, zero_point, min, max, dtype, dtype? -> out
Status quantize_rows(const Call& call);  // self, scales, zero_points, min, max, dtype -> out
Status dequantize_rows(const Call& call);       // self, scales, zero_points, min, max, dtype, dtype
Status choose_row_encodings(const Call& call);  // self, dtype -> scales, zero points, for i8

// -- coded_embedding.cc: Call::variant is the number of bits of a code
Status embedding_codes(const Call& call);        // weight, scales, zeros?, min, max, indices -> out
Status embedding_codes_dtype(const Call& call);  // ..., indices, dtype? -> out

// -- mixed_linear.cc: i8 codes, scales of the weight's rows
Status mixed_linear(const Call& call);  // input, weight, scales, zero_points?, dtype? -> out
Status mixed_mm(const Call& call);      // input, weight, scales, zero_points? -> out

// -- blocks.cc: matrices in blocks of GGUF files
Status block_linear(const Call& call);     // input, blocks, encoding -> out
Status block_linears(const Call& call);    // input, list of blocks, encodings -> list of outs
Status block_embedding(const Call& call);  // blocks, indices, columns, encoding -> out

// -- convolution.cc
Status convolution(const Call& call);

// -- activations.cc
Status leaky_relu(const Call& call);      // self, slope -> out
Status elu(const Call& call);             // self, alpha, scale, input_scale -> out
Status logit(const Call& call);           // self, eps? -> out
Status glu(const Call& call);             // self, dim -> out
Status clamp_tensors(const Call& call);   // self, min?, max? -> out
Status divide_rounded(const Call& call);  // self, other (variant 1: Scalar), mode? -> out

// -- pooling.cc
Status avg_pool(
    const Call& call);  // self, kernel, stride, padding, ceil, count_pad, divisor? -> out
Status max_pool(const Call& call);  // self, kernel, stride, padding, dilation, ceil -> out, indices
Status adaptive_avg_pool(const Call& call);  // self, size -> out

// -- resample.cc
Status upsample_nearest(const Call& call);   // input, size?, factors? -> out
Status upsample_bilinear(const Call& call);  // input, size?, align_corners, factors? -> out
Status upsample_smooth(const Call& call);    // input, size, align_corners, factor?, factor? -> out
Status grid_sample(const Call& call);        // input, grid, mode, padding, align_corners -> out

// -- norms.cc
Status batch_norm(const Call& call);  // input, weight?, bias?, mean, var, momentum, eps -> 3 outs
Status batch_norm_no_stats(const Call& call);  // input, weight?, bias?, training, momentum, eps
Status group_norm(const Call& call);  // input, weight?, bias?, n, c, hw, groups, eps -> 3 outs

// -- reorder.cc
Status pad_from_self(const Call& call);      // self, widths -> out; variant 0 mirrors, 1 repeats
Status flip(const Call& call);               // self, dims -> out
Status roll(const Call& call);               // self, shifts, dims -> out
Status tril(const Call& call);               // self, diagonal -> out
Status pixel_shuffle(const Call& call);      // self, factor -> out; variant 1 is the inverse
Status diagonal_copy(const Call& call);      // self, offset, dim1, dim2 -> out
Status unfold_copy(const Call& call);        // self, dim, size, step -> out
Status as_strided(const Call& call);         // self, size, stride, offset? -> out
Status repeat_interleave(const Call& call);  // repeats, output_size? -> out
Status tile_crop(const Call& call);          // image [C,H,W], tile size -> tiles [N,C,size,size]
Status copy_to_index(const Call& call);      // rows, row, index: rows[index] = row

// -- hadamard.cc: rows of 2^n or 28 * 2^n values
Status fast_hadamard(const Call& call);  // self -> out

// -- distance.cc
Status row_distances(const Call& call);   // rows, rows, p, compute_mode? -> out
Status pair_distances(const Call& call);  // rows, p -> out

// -- fourier.cc
Status fourier_of_real(const Call& call);    // self, dims, normalization, onesided -> out
Status real_of_fourier(const Call& call);    // self, dims, normalization, last_dim_size -> out
Status view_as_real(const Call& call);       // self -> out [..., 2]
Status complex_magnitude(const Call& call);  // self -> out

// -- channel_codes.cc
Status quantize_by_tensors(const Call& call);    // self, scale, zero_point, min, max, dtype -> out
Status dequantize_by_tensors(const Call& call);  // ..., dtype? -> out
Status quantize_channels(const Call& call);    // self, scales, zeros, axis, min, max, dtype -> out
Status dequantize_channels(const Call& call);  // self, scales, zeros?, axis, ..., dtype? -> out

}  // namespace ferry::kernels
