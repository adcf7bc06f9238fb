// Double-precision kernels.
#include "core/highway_targets.h"
// This include must follow the choice of targets.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/compute_f64.cc"
#include "hwy/foreach_target.h"
// This include must follow foreach_target.h.
#include "hwy/highway.h"
#include "kernels/compute_types.h"

HWY_BEFORE_NAMESPACE();
namespace ferry::kernels {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using F64 = hn::CappedTag<double, 8>;
constexpr size_t kDoubles = hn::MaxLanes(F64());
constexpr size_t kVectors = kPanel / kDoubles;

template <size_t kRows>
HWY_INLINE void panel_rows(const PanelProduct& p, size_t row, size_t from, size_t depth) {
  const F64 d;
  hn::Vec<F64> sums[kRows][kVectors];
  HWY_ALIGN double edge[kPanel];
  double* const out = p.out + row * p.stride;
  const bool whole = p.columns == kPanel;
  for (size_t r = 0; r < kRows; ++r) {
    const double* have = out + r * p.stride;
    if (from > 0 && !whole) {
      for (size_t j = 0; j < kPanel; ++j) edge[j] = j < p.columns ? have[j] : 0;
      have = edge;
    }
    for (size_t v = 0; v < kVectors; ++v) {
      sums[r][v] = from == 0 ? hn::Zero(d) : hn::LoadU(d, have + v * kDoubles);
    }
  }
  const double* x = p.x + row * p.k + from;
  const double* panel = p.panel + from * kPanel;
  for (size_t i = 0; i < depth; ++i, panel += kPanel) {
    for (size_t v = 0; v < kVectors; ++v) {
      const auto w = hn::LoadU(d, panel + v * kDoubles);
      for (size_t r = 0; r < kRows; ++r) {
        sums[r][v] = hn::MulAdd(hn::Set(d, x[r * p.k + i]), w, sums[r][v]);
      }
    }
  }
  for (size_t r = 0; r < kRows; ++r) {
    double* to = whole ? out + r * p.stride : edge;
    for (size_t v = 0; v < kVectors; ++v) hn::StoreU(sums[r][v], d, to + v * kDoubles);
    if (!whole) {
      for (size_t j = 0; j < p.columns; ++j) out[r * p.stride + j] = edge[j];
    }
  }
}

void panel_product(const PanelProduct& p) {
  constexpr size_t kRows = kDoubles >= 8 ? 8 : 3;
  for (size_t from = 0; from < p.k; from += kPanelDepth) {
    const size_t depth = p.k - from < kPanelDepth ? p.k - from : kPanelDepth;
    size_t row = 0;
    for (; row + kRows <= p.m; row += kRows) panel_rows<kRows>(p, row, from, depth);
    for (; row < p.m; ++row) panel_rows<1>(p, row, from, depth);
  }
}

// Computes one output of linear_f64 for a row of f32 weights.
double dot_f32(const double* x, const float* w, size_t k) {
  const F64 d;
  const hn::Rebind<float, F64> d32;
  constexpr size_t kSums = 4;
  hn::Vec<F64> sums[kSums];
  for (auto& sum : sums) sum = hn::Zero(d);
  size_t i = 0;
  for (; i + kSums * kDoubles <= k; i += kSums * kDoubles) {
    for (size_t s = 0; s < kSums; ++s) {
      const size_t at = i + s * kDoubles;
      sums[s] = hn::MulAdd(hn::LoadU(d, x + at), hn::PromoteTo(d, hn::LoadU(d32, w + at)), sums[s]);
    }
  }
  HWY_ALIGN double lanes[kDoubles];
  hn::Store(hn::Add(hn::Add(sums[0], sums[1]), hn::Add(sums[2], sums[3])), d, lanes);
  double sum = 0;
  for (double lane : lanes) sum += lane;
  for (; i < k; ++i) sum += x[i] * static_cast<double>(w[i]);
  return sum;
}

double dot_f64(const double* a, const double* b, size_t n) {
  const F64 d;
  auto sums = hn::Zero(d);
  size_t i = 0;
  for (; i + kDoubles <= n; i += kDoubles) {
    sums = hn::MulAdd(hn::LoadU(d, a + i), hn::LoadU(d, b + i), sums);
  }
  HWY_ALIGN double lanes[kDoubles];
  hn::Store(sums, d, lanes);
  double sum = 0;
  for (double lane : lanes) sum += lane;
  for (; i < n; ++i) sum += a[i] * b[i];
  return sum;
}

// y += factor * x
void add_scaled_f64(double factor, const double* x, double* y, size_t n) {
  const F64 d;
  const auto f = hn::Set(d, factor);
  size_t i = 0;
  for (; i + kDoubles <= n; i += kDoubles) {
    hn::StoreU(hn::MulAdd(f, hn::LoadU(d, x + i), hn::LoadU(d, y + i)), d, y + i);
  }
  for (; i < n; ++i) y[i] += factor * x[i];
}

}  // namespace HWY_NAMESPACE
}  // namespace ferry::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <vector>

#include "kernels/compute_f64.h"
#include "kernels/dtypes.h"

namespace ferry::kernels {
namespace {

HWY_EXPORT(panel_product);
HWY_EXPORT(dot_f32);
HWY_EXPORT(dot_f64);
HWY_EXPORT(add_scaled_f64);

double dot(const double* a, const double* b, size_t n) {
  return HWY_DYNAMIC_DISPATCH(dot_f64)(a, b, n);
}
void add_scaled(double factor, const double* x, double* y, size_t n) {
  HWY_DYNAMIC_DISPATCH(add_scaled_f64)(factor, x, y, n);
}

// For fewer rows of `x` converting a panel of weights is not worth it.
constexpr int64_t kFewRows = 4;

// Computes columns [begin, begin + count) of the result, by panels of rows of `w`.
void linear_panels(const double* x, DType dtype, const std::byte* w, double* out, size_t m,
                   size_t n, size_t k, size_t begin, size_t count) {
  std::vector<double> row(k), panel(k * kPanel);
  for (size_t at = begin; at < begin + count; at += kPanel) {
    const size_t columns = std::min(kPanel, begin + count - at);
    for (size_t j = 0; j < columns; ++j) {
      const size_t bytes = k * static_cast<size_t>(dtype_bytes(dtype));
      load(dtype, w + (at + j) * bytes, row.data(), static_cast<int64_t>(k));
      for (size_t i = 0; i < k; ++i) panel[i * kPanel + j] = row[i];
    }
    HWY_DYNAMIC_DISPATCH(panel_product)({x, panel.data(), out + at, m, k, columns, n});
  }
}

// Computes the columns as linear_panels() does, row by row of `w`, for a few rows of `x`.
void linear_rows(const double* x, DType dtype, const std::byte* w, double* out, size_t m, size_t n,
                 size_t k, size_t begin, size_t count) {
  std::vector<float> row(dtype == DType::kF32 ? 0 : k);
  for (size_t j = begin; j < begin + count; ++j) {
    const auto* values = reinterpret_cast<const float*>(w) + j * k;
    if (dtype != DType::kF32) {
      const std::byte* from = w + j * k * static_cast<size_t>(dtype_bytes(dtype));
      load(dtype, from, row.data(), static_cast<int64_t>(k));
      values = row.data();
    }
    for (size_t i = 0; i < m; ++i) {
      out[i * n + j] = HWY_DYNAMIC_DISPATCH(dot_f32)(x + i * k, values, k);
    }
  }
}

// Attention of one query of one head.
struct OneQuery {
  const SdpaShape& s;
  // pointers for this query and head; mask may be nullptr
  const double *query, *key, *value, *mask;
  int64_t seen;  // number of keys
  double scale;
  double* out;
};

void attend(const OneQuery& q, std::vector<double>& scores) {
  const auto dim = static_cast<size_t>(q.s.dim);
  const int64_t stride = q.s.kv_heads * q.s.dim;
  scores.resize(static_cast<size_t>(q.seen));
  double largest = -std::numeric_limits<double>::infinity();
  for (int64_t i = 0; i < q.seen; ++i) {
    double score = q.scale * dot(q.query, q.key + i * stride, dim);
    if (q.mask != nullptr) score += q.mask[i];
    scores[static_cast<size_t>(i)] = score;
    largest = std::max(largest, score);
  }
  std::fill_n(q.out, dim, 0.0);
  if (std::isinf(largest)) return;
  double sum = 0;
  for (double& score : scores) sum += score = std::exp(score - largest);
  for (int64_t i = 0; i < q.seen; ++i) {
    add_scaled(scores[static_cast<size_t>(i)] / sum, q.value + i * stride, q.out, dim);
  }
}

}  // namespace

void linear_f64(const double* x, DType dtype, const void* w, double* out, int64_t m, int64_t n,
                int64_t k, ThreadPool& pool) {
  constexpr size_t kColumns = 64;
  const auto columns = static_cast<size_t>(n);
  const auto task = [&](size_t index) {
    const size_t begin = index * kColumns, count = std::min(kColumns, columns - begin);
    // A dot product reads f32 weights without a loss. f64 weights need a panel.
    const bool few = m < kFewRows && dtype != DType::kF64;
    (few ? linear_rows : linear_panels)(x, dtype, static_cast<const std::byte*>(w), out,
                                        static_cast<size_t>(m), columns, static_cast<size_t>(k),
                                        begin, count);
  };
  pool.parallel_for((columns + kColumns - 1) / kColumns, std::ref(task));
}

void bmm_f64(const double* a, const double* b, double* out, int64_t batch, int64_t m, int64_t n,
             int64_t k, ThreadPool& pool) {
  const auto rows = static_cast<size_t>(m), columns = static_cast<size_t>(n);
  const auto depth = static_cast<size_t>(k);
  const size_t panels = (columns + kPanel - 1) / kPanel;
  const auto task = [&](size_t index) {
    const size_t i = index / panels, at = index % panels * kPanel;
    const size_t count = std::min(kPanel, columns - at);
    std::vector<double> panel(depth * kPanel);
    for (size_t p = 0; p < depth; ++p) {
      std::copy_n(b + (i * depth + p) * columns + at, count, panel.data() + p * kPanel);
    }
    HWY_DYNAMIC_DISPATCH(panel_product)
    ({a + i * rows * depth, panel.data(), out + i * rows * columns + at, rows, depth, count,
      columns});
  };
  pool.parallel_for(static_cast<size_t>(batch) * panels, std::ref(task));
}

void sdpa_f64(const SdpaShape& shape, const double* query, const double* key, const double* value,
              const double* mask, bool causal, int64_t start_pos, double scale, double* out,
              ThreadPool& pool) {
  const int64_t group = shape.heads / shape.kv_heads;
  const auto task = [&](size_t index) {
    const int64_t head = static_cast<int64_t>(index) % shape.heads;
    const int64_t row = static_cast<int64_t>(index) / shape.heads;  // counted through all batches
    const int64_t batch = row / shape.t, t = row % shape.t;
    const int64_t cache =
        batch * shape.context * shape.kv_heads * shape.dim + head / group * shape.dim;
    const int64_t at = (row * shape.heads + head) * shape.dim;
    std::vector<double> scores;
    attend({shape, query + at, key + cache, value + cache,
            mask == nullptr ? nullptr : mask + t * shape.context,
            mask != nullptr || !causal ? shape.context : std::min(start_pos + t + 1, shape.context),
            scale, out + at},
           scores);
  };
  pool.parallel_for(static_cast<size_t>(shape.batch * shape.t * shape.heads), std::ref(task));
}

void gated_delta_rule_f64(const DeltaRuleShape& shape, const double* query, const double* key,
                          const double* value, const double* decay, const double* beta,
                          const double* initial_state, double* out, double* final_state,
                          ThreadPool& pool) {
  const int64_t k = shape.key_dim, v = shape.value_dim, steps = shape.t, queries = shape.queries;
  const int64_t decays = shape.decay_per_key ? k : 1;
  const auto task = [&](size_t head_index) {
    const auto head = static_cast<int64_t>(head_index);
    double* const state = final_state + head * k * v;
    if (final_state != initial_state) std::copy_n(initial_state + head * k * v, k * v, state);
    std::vector<double> delta(static_cast<size_t>(v));
    for (int64_t at = head * steps; at < (head + 1) * steps; ++at) {
      std::fill(delta.begin(), delta.end(), 0.0);
      for (int64_t i = 0; i < k; ++i) {
        const double g = decay[at * decays + (shape.decay_per_key ? i : 0)];
        for (int64_t j = 0; j < v; ++j) state[i * v + j] *= g;
        add_scaled(key[at * k + i], state + i * v, delta.data(), static_cast<size_t>(v));
      }
      for (int64_t j = 0; j < v; ++j) {
        double& d = delta[static_cast<size_t>(j)];
        d = beta[at] * (value[at * v + j] - d);
      }
      for (int64_t i = 0; i < k; ++i) {
        add_scaled(key[at * k + i], delta.data(), state + i * v, static_cast<size_t>(v));
      }
      for (int64_t q = 0; q < queries; ++q) {
        const int64_t row = (head * queries + q) * steps + at - head * steps;
        std::fill_n(out + row * v, v, 0.0);
        for (int64_t i = 0; i < k; ++i) {
          add_scaled(query[row * k + i], state + i * v, out + row * v, static_cast<size_t>(v));
        }
      }
    }
  };
  pool.parallel_for(static_cast<size_t>(shape.batch * shape.heads), std::ref(task));
}

}  // namespace ferry::kernels
#endif  // HWY_ONCE
