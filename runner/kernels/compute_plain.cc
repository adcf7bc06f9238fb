// Plain loops for every kernel of compute.h.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "runner/kernels/compute.h"

namespace ferry::kernels {
void bmm_f32(const float* a, const float* b, float* out, int64_t batch, int64_t m, int64_t n,
             int64_t k, ThreadPool& pool) {
  pool.parallel_for(static_cast<size_t>(batch * m), [&](size_t index) {
    const auto row = static_cast<int64_t>(index);
    float* o = out + row * n;
    std::fill(o, o + n, 0.0f);
    for (int64_t c = 0; c < k; ++c) {
      const float* b_row = b + (row / m * k + c) * n;
      for (int64_t j = 0; j < n; ++j) o[j] += a[row * k + c] * b_row[j];
    }
  });
}

void sdpa_f32(const SdpaShape& s, const float* query, const float* key, const float* value,
              const float* mask, bool causal, int64_t start_pos, float scale, float* out,
              ThreadPool& pool) {
  const int64_t group = s.heads / s.kv_heads;
  pool.parallel_for(static_cast<size_t>(s.batch * s.t * s.heads), [&](size_t index) {
    const auto item = static_cast<int64_t>(index);
    const int64_t h = item % s.heads, i = item / s.heads % s.t, b = item / s.heads / s.t;
    const int64_t seen = mask || !causal ? s.context : std::min(s.context, start_pos + i + 1);
    const float* q = query + item * s.dim;
    const int64_t kv = b * s.context * s.kv_heads * s.dim + h / group * s.dim;
    std::vector<float> p(static_cast<size_t>(seen));
    float top = -std::numeric_limits<float>::infinity();
    for (int64_t j = 0; j < seen; ++j) {
      float dot = 0;
      for (int64_t d = 0; d < s.dim; ++d) dot += q[d] * key[kv + j * s.kv_heads * s.dim + d];
      p[j] = dot * scale + (mask ? mask[i * s.context + j] : 0.0f);
      top = std::max(top, p[j]);
    }
    float* o = out + item * s.dim;
    std::fill(o, o + s.dim, 0.0f);
    if (top == -std::numeric_limits<float>::infinity()) return;
    float total = 0;
    for (int64_t j = 0; j < seen; ++j) {
      p[j] = std::exp(p[j] - top);
      total += p[j];
      for (int64_t d = 0; d < s.dim; ++d) o[d] += p[j] * value[kv + j * s.kv_heads * s.dim + d];
    }
    for (int64_t d = 0; d < s.dim; ++d) o[d] /= total;
  });
}

void gated_delta_rule_f32(const DeltaRuleShape& s, const float* query, const float* key,
                          const float* value, const float* decay, const float* beta,
                          const float* initial_state, float* out, float* final_state,
                          ThreadPool& pool) {
  pool.parallel_for(static_cast<size_t>(s.batch * s.heads), [&](size_t head) {
    const auto bh = static_cast<int64_t>(head);
    float* state = final_state + bh * s.key_dim * s.value_dim;
    std::copy_n(initial_state + bh * s.key_dim * s.value_dim, s.key_dim * s.value_dim, state);
    std::vector<float> delta(static_cast<size_t>(s.value_dim));
    for (int64_t t = bh * s.t; t < (bh + 1) * s.t; ++t) {
      const float* q = query + t * s.key_dim;
      const float* kk = key + t * s.key_dim;
      const float* v = value + t * s.value_dim;
      float* o = out + t * s.value_dim;
      std::fill(delta.begin(), delta.end(), 0.0f);
      for (int64_t i = 0; i < s.key_dim; ++i) {
        const float g = decay[s.decay_per_key ? t * s.key_dim + i : t];
        for (int64_t j = 0; j < s.value_dim; ++j) {
          state[i * s.value_dim + j] *= g;
          delta[j] += kk[i] * state[i * s.value_dim + j];
        }
      }
      for (int64_t j = 0; j < s.value_dim; ++j) delta[j] = beta[t] * (v[j] - delta[j]);
      std::fill(o, o + s.value_dim, 0.0f);
      for (int64_t i = 0; i < s.key_dim; ++i) {
        for (int64_t j = 0; j < s.value_dim; ++j) {
          state[i * s.value_dim + j] += kk[i] * delta[j];
          o[j] += q[i] * state[i * s.value_dim + j];
        }
      }
    }
  });
}

}  // namespace ferry::kernels
