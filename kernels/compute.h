// The kernels that decide speed: plain functions over raw row-major memory, written with Highway
// and dispatched at run time to the best instruction set (AVX-512, AVX2, NEON, plain loops). Each
// has a naive twin in the tests.
//
// Every output element is summed in an order that depends on its own sizes only, so results are
// bit-identical for any ThreadPool size, and a row of a batch, a query of a prefill, a step of a
// sequence has the bits that it has when it is computed alone: prefill and decode agree to the bit.
// Results of different instruction sets differ by rounding (sum_f32: not even that).
//
// Callers check shapes, dtypes and ranges; sizes may be zero. Outputs do not overlap inputs unless
// a comment allows it. Memory of `linear` weights may lie at any address; everything else is
// aligned to its element.
#pragma once

#include <cstdint>

#include "core/dtype.h"
#include "core/thread_pool.h"

namespace ferry::kernels {

// out[m,n] = sum_k x[m,k] * w[n,k], accumulated in f32. `dtype` is that of x, w and out: f32, f16
// or bf16 (out rounded once, to nearest even). A few rows (decode) read w once at memory speed,
// more (prefill) go through register tiles.
void linear(DType dtype, const void* x, const void* w, void* out, int64_t m, int64_t n, int64_t k,
            ThreadPool& pool);

// out[b] = a[b] * c[b], batches of [m,k] x [k,n] in f32.
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
// Every dtype of a cache gives the bits that its values as f32 give.
struct SdpaShape {
  int64_t batch, t, heads, kv_heads, dim, context;
};
// f32, f16, bf16, or i8 codes for (code - zero_point) * scale, with a scale and a zero point for
// each [batch,context,kv_heads].
struct StoredRows {
  DType dtype;
  const void* at;
  const float* scales = nullptr;
  const int8_t* zero_points = nullptr;
};
// The largest `dim` of caches that are not f32.
inline constexpr int64_t kMaxStoredDim = 4096;
void sdpa_f32(const SdpaShape& shape, const float* query, const StoredRows& key,
              const StoredRows& value, const float* mask, bool causal, int64_t start_pos,
              float scale, float* out, ThreadPool& pool);

// Gated delta rule (llama::gated_delta_rule), per head over time t:
//   S *= decay_t; m = k^T S; S += k (x) (beta * (v - m)); out_t = q^T S
//   query,key [b,h,t,k], value [b,h,t,v], beta [b,h,t], decay [b,h,t] (or [b,h,t,k] when
//   decay_per_key), state [b,h,k,v]; out [b,h,t,v], final_state as state; all f32.
// final_state may be initial_state.
struct DeltaRuleShape {
  int64_t batch, heads, t, key_dim, value_dim;
  bool decay_per_key;
};
void gated_delta_rule_f32(const DeltaRuleShape& shape, const float* query, const float* key,
                          const float* value, const float* decay, const float* beta,
                          const float* initial_state, float* out, float* final_state,
                          ThreadPool& pool);

// Depthwise 1-D convolution, stride 1, no padding: x [channels,length], w [channels,kernel],
// out [channels, length - kernel + 1]; bias may be null.
void depthwise_conv1d_f32(const float* x, const float* w, const float* bias, float* out,
                          int64_t channels, int64_t length, int64_t kernel, ThreadPool& pool);

// Element-wise over n contiguous values; `out` may be `a` or `b`. exp is within 1 ulp, sigmoid
// within 2; NaN stays NaN.
void add_f32(const float* a, const float* b, float* out, int64_t n);
void mul_f32(const float* a, const float* b, float* out, int64_t n);
void sigmoid_f32(const float* a, float* out, int64_t n);
void exp_f32(const float* a, float* out, int64_t n);
// GELU by its definition, and by the approximation with tanh: within 2 ulp of the operand.
void gelu_f32(const float* a, float* out, int64_t n);
void gelu_tanh_f32(const float* a, float* out, int64_t n);
// Casts between f32, f16 and bf16: to nearest even, NaN stays NaN.
void cast(DType from, const void* a, DType to, void* out, int64_t n);

// Sum of n values, value i in partial sum i mod 64: the same bits on every instruction set.
float sum_f32(const float* a, int64_t n);
// Softmax of one row, `out` may be `a`. Nothing but minus infinity gives NaN.
void softmax_row_f32(const float* a, float* out, int64_t n);

}  // namespace ferry::kernels
