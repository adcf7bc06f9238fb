// Kernels in double precision, for executions that measure the rounding of f32
// (MethodOptions::f64). Matrices are read in their stored dtype, so a model takes no more memory
// than in f32. Speed matters less than in compute.h: an execution in f64 should take at most four
// times as long as in f32.
//
// As in compute.h, every output is summed in an order that depends on its own sizes only, and
// callers check shapes, dtypes and ranges.
#pragma once

#include <cstdint>

#include "core/dtype.h"
#include "core/thread_pool.h"
#include "kernels/compute.h"

namespace ferry::kernels {

// Computes out[m,n] = sum_k x[m,k] * w[n,k]; w is f64, f32, f16 or bf16.
void linear_f64(const double* x, DType dtype, const void* w, double* out, int64_t m, int64_t n,
                int64_t k, ThreadPool& pool);

// Computes out[b] = a[b] * c[b] for batches of [m,k] x [k,n].
void bmm_f64(const double* a, const double* b, double* out, int64_t batch, int64_t m, int64_t n,
             int64_t k, ThreadPool& pool);

// Computes sdpa_f32 in f64; caches are f64.
void sdpa_f64(const SdpaShape& shape, const double* query, const double* key, const double* value,
              const double* mask, bool causal, int64_t start_pos, double scale, double* out,
              ThreadPool& pool);

// Computes gated_delta_rule_f32 in f64.
void gated_delta_rule_f64(const DeltaRuleShape& shape, const double* query, const double* key,
                          const double* value, const double* decay, const double* beta,
                          const double* initial_state, double* out, double* final_state,
                          ThreadPool& pool);

}  // namespace ferry::kernels
