// The kernels that decide speed: plain functions over raw row-major memory, written with Highway and
// dispatched at run time to the best instruction set. Each has a naive twin in the tests.
// Work is cut into fixed partitions that do not depend on the number of threads, and each output
// element is summed in a fixed order: results are bit-identical for any ThreadPool size, and a row of
// a batch equals the same row computed alone wherever the doc comment says so.
#pragma once

#include <cstdint>

#include "core/dtype.h"
#include "core/thread_pool.h"

namespace ferry::kernels {

// out[m,n] = sum_k x[m,k] * w[n,k], accumulated in f32. `dtype` is that of x, w and out: f32, f16 or
// bf16 (out rounded once, to nearest even). m == 1 (decode) reads w once at memory speed.
void linear(DType dtype, const void* x, const void* w, void* out, int64_t m, int64_t n, int64_t k,
            ThreadPool& pool);

// out[b] = a[b] * c[b], batches of [m,k] x [k,n] in f32.
void bmm_f32(const float* a, const float* b, float* out, int64_t batch, int64_t m, int64_t n,
             int64_t k, ThreadPool& pool);

// Attention over caches, sequence in dim 1 (llama::custom_sdpa):
//   query [batch,t,heads,dim], key/value [batch,context,kv_heads,dim], out as query; all f32.
// Causal: query i sees keys [0, start_pos + i]. With `mask` [t,context] (added to the scaled
// scores) every key of `context` is seen. Keys beyond what is seen are never read. Softmax is exact
// (running maximum), heads map to kv head h / (heads / kv_heads).
struct SdpaShape {
  int64_t batch, t, heads, kv_heads, dim, context;
};
void sdpa_f32(const SdpaShape& shape, const float* query, const float* key, const float* value,
              const float* mask, bool causal, int64_t start_pos, float scale, float* out,
              ThreadPool& pool);

// Gated delta rule (llama::gated_delta_rule), per head over time t:
//   S *= decay_t; m = k^T S; S += k (x) (beta * (v - m)); out_t = q^T S
//   query,key [b,h,t,k], value [b,h,t,v], beta [b,h,t], decay [b,h,t] (or [b,h,t,k] when
//   decay_per_key), state [b,h,k,v]; out [b,h,t,v], final_state as state; all f32.
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

// Element-wise over n contiguous values; `out` may be `a` or `b`.
void add_f32(const float* a, const float* b, float* out, int64_t n);
void mul_f32(const float* a, const float* b, float* out, int64_t n);
void sigmoid_f32(const float* a, float* out, int64_t n);
void exp_f32(const float* a, float* out, int64_t n);
// Casts: f32 <-> f16/bf16, round to nearest even.
void cast(DType from, const void* a, DType to, void* out, int64_t n);

// Sum of n values in a fixed order (pairwise over vector lanes), so that norms do not depend on
// dispatch beyond rounding.
float sum_f32(const float* a, int64_t n);
// Largest value and softmax of one row.
void softmax_row_f32(const float* a, float* out, int64_t n);

}  // namespace ferry::kernels
