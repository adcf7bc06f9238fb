// The kernels that decide speed are plain functions over raw row-major memory, written with Highway
// and dispatched at run time to the best instruction set (AVX-512, AVX2, NEON, plain loops). The
// tests have a naive implementation of each.
//
// Every output element is summed in an order that depends on its own sizes only, so results are
// bit-identical for any ThreadPool size. A row of a batch, a query of a prefill and a step of a
// sequence have the bits that they have when they are computed alone, so prefill and decode agree
// to the bit. Results of different instruction sets differ by rounding, except those of sum_f32.
//
// Callers check shapes, dtypes and ranges; sizes may be zero. Outputs do not overlap inputs unless
// a comment allows it. The weights of `linear` may lie at any address; everything else is aligned
// to its element.
#pragma once

#include <cstdint>

#include "core/dtype.h"
#include "core/thread_pool.h"

namespace ferry::kernels {

// Computes out[m,n] = sum_k x[m,k] * w[n,k], accumulated in f32. `dtype` is that of x, w and out:
// f32, f16 or bf16 (out is rounded once, to nearest even). For a few rows (decode) w is read once
// at memory speed, for more (prefill) the product uses register tiles. bf16 uses the processor's
// own products of bf16 (kernels/bf16_linear.h) where Bf16Choice asks for them and CommonTarget does
// not forbid them.
void linear(DType dtype, const void* x, const void* w, void* out, int64_t m, int64_t n, int64_t k,
            ThreadPool& pool);

// Computes out[b] = a[b] * c[b] for batches of [m,k] x [k,n] in f32.
void bmm_f32(const float* a, const float* b, float* out, int64_t batch, int64_t m, int64_t n,
             int64_t k, ThreadPool& pool);

// Attention over caches, sequence in dim 1 (llama::custom_sdpa):
//   query [batch,t,heads,dim], key/value [batch,context,kv_heads,dim], out as query; query and out
//   are f32, keys and values as they are stored.
// Causal: query i sees keys [0, start_pos + i]. With `mask` [t,context] (added to the scaled
// scores) every key of `context` is seen. Keys and values beyond what the last query sees are never
// read, and nothing that a query does not see has an influence on it, be it NaN. Softmax is exact
// (running maximum over blocks of keys); masks may be minus infinity or finite; a query with
// nothing but minus infinity gets zeros. Heads map to kv head h / (heads / kv_heads). Caches are
// read once for all heads of a group.
// Caches of every dtype give the bits that their values as f32 would give.
struct SdpaShape {
  int64_t batch, t, heads, kv_heads, dim, context;
};
struct CacheCodes;
// Rows of f32, f16, bf16, or of i8 codes for (code - zero_point) * scale. These codes have a scale
// and a zero point for each [batch,context,kv_heads]. Or rows of CacheCodes, which are read turned,
// in a batch of 1; the dtype is u8 then.
struct StoredRows {
  DType dtype;
  const void* at;
  const float* scales = nullptr;
  const int8_t* zero_points = nullptr;
  const CacheCodes* codes = nullptr;
};
// Caches that are not f32 have at most this `dim`.
inline constexpr int64_t kMaxStoredDim = 4096;
void sdpa_f32(const SdpaShape& shape, const float* query, const StoredRows& key,
              const StoredRows& value, const float* mask, bool causal, int64_t start_pos,
              float scale, float* out, ThreadPool& pool);

// Gated delta rule (llama::gated_delta_rule), per head over time t:
//   S *= decay_t; m = k^T S; S += k (x) (beta * (v - m)); out_t = q^T S
//   key [b,h,t,k], value [b,h,t,v], beta [b,h,t], decay [b,h,t] (or [b,h,t,k] when
//   decay_per_key), state [b,h,k,v]; query [b,h*queries,t,k], out [b,h*queries,t,v], final_state as
//   state; all f32. `queries` heads of the query read one state.
// final_state may be initial_state.
struct DeltaRuleShape {
  int64_t batch, heads, t, key_dim, value_dim;
  bool decay_per_key;
  int64_t queries = 1;
};
void gated_delta_rule_f32(const DeltaRuleShape& shape, const float* query, const float* key,
                          const float* value, const float* decay, const float* beta,
                          const float* initial_state, float* out, float* final_state,
                          ThreadPool& pool);

// Depthwise 1-D convolution, stride 1, no padding: x [channels,length], w [channels,kernel],
// out [channels, length - kernel + 1]; bias may be null.
void depthwise_conv1d_f32(const float* x, const float* w, const float* bias, float* out,
                          int64_t channels, int64_t length, int64_t kernel, ThreadPool& pool);

// Element-wise kernels over n contiguous values; `out` may be `a` or `b`. exp is within 1 ulp,
// sigmoid within 2; NaN stays NaN.
void add_f32(const float* a, const float* b, float* out, int64_t n);
void mul_f32(const float* a, const float* b, float* out, int64_t n);
// Computes sum += a * b, fused where the processor can; `sum` is neither operand.
void multiply_add_f32(const float* a, const float* b, float* sum, int64_t n);
void sigmoid_f32(const float* a, float* out, int64_t n);
void exp_f32(const float* a, float* out, int64_t n);
// GELU by its definition, and GELU by the approximation with tanh. Both are within 2 ulp of the
// operand.
void gelu_f32(const float* a, float* out, int64_t n);
void gelu_tanh_f32(const float* a, float* out, int64_t n);
// Computes activation(gate) * up with the bits of sigmoid_f32 and two mul_f32, or of gelu_f32 or
// gelu_tanh_f32 and mul_f32.
enum class GateActivation : int { kSilu, kGelu, kGeluTanh };
void gated_product_f32(GateActivation activation, const float* gate, const float* up, float* out,
                       int64_t n);
// Casts between f32, f16 and bf16, rounding to nearest even. NaN stays NaN.
void cast(DType from, const void* a, DType to, void* out, int64_t n);

// Returns the sum of n values. Value i is added to partial sum i mod 64, so every instruction set
// gives the same bits.
float sum_f32(const float* a, int64_t n);
// Computes the softmax of one row; `out` may be `a`. A row of nothing but minus infinity gives NaN.
void softmax_row_f32(const float* a, float* out, int64_t n);

}  // namespace ferry::kernels
