// The gated delta rule.
#include "core/highway_targets.h"
// This include must follow the choice of targets.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/compute_delta_rule.cc"
#include "hwy/foreach_target.h"
// This include must follow foreach_target.h.
#include "kernels/compute_simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ferry::kernels {
namespace HWY_NAMESPACE {

// Columns of a state, (key_dim, kV vectors).
struct StateView {
  float* data;
  size_t stride;
};

// Computes one time step of kV vectors of columns, from one state to another (or the same).
template <size_t kV, class D>
HWY_INLINE void delta_step(D d, const DeltaRuleArgs& a, size_t t, size_t column, const float* from,
                           size_t from_stride, StateView to) {
  constexpr size_t kWidth = hn::MaxLanes(D());
  using V = hn::Vec<D>;
  const float* key = a.key + t * a.key_dim;
  const float* query = a.query + t * a.key_dim;
  const float* decay = a.decay + (a.decay_per_key ? t * a.key_dim : t);
  const size_t decay_step = a.decay_per_key ? 1 : 0;
  V delta[kV], out[kV];
  for (size_t v = 0; v < kV; ++v) delta[v] = out[v] = hn::Zero(d);
  for (size_t i = 0; i < a.key_dim; ++i) {
    const V k = hn::Set(d, key[i]), g = hn::Set(d, decay[i * decay_step]);
    for (size_t v = 0; v < kV; ++v) {
      const V s = hn::Mul(load_f32(d, from + i * from_stride + v * kWidth), g);
      delta[v] = hn::MulAdd(k, s, delta[v]);
    }
  }
  const V beta = hn::Set(d, a.beta[t]);
  for (size_t v = 0; v < kV; ++v) {
    const V value = load_f32(d, a.value + t * a.value_dim + column + v * kWidth);
    delta[v] = hn::Mul(beta, hn::Sub(value, delta[v]));
  }
  for (size_t i = 0; i < a.key_dim; ++i) {
    const V k = hn::Set(d, key[i]), g = hn::Set(d, decay[i * decay_step]);
    const V q = hn::Set(d, query[i]);
    for (size_t v = 0; v < kV; ++v) {
      V s = hn::Mul(load_f32(d, from + i * from_stride + v * kWidth), g);
      s = hn::MulAdd(k, delta[v], s);
      out[v] = hn::MulAdd(q, s, out[v]);
      hn::StoreU(s, d, to.data + i * to.stride + v * kWidth);
    }
  }
  for (size_t v = 0; v < kV; ++v) {
    hn::StoreU(out[v], d, a.out + t * a.value_dim + column + v * kWidth);
  }
}

// Computes what the queries of one more head read of kV vectors of columns in step t.
template <size_t kV, class D>
HWY_INLINE void read_state(D d, const DeltaRuleArgs& a, size_t head, size_t t, size_t column,
                           StateView state) {
  constexpr size_t kWidth = hn::MaxLanes(D());
  const float* query = a.query + (head * a.t + t) * a.key_dim;
  hn::Vec<D> out[kV];
  for (size_t v = 0; v < kV; ++v) out[v] = hn::Zero(d);
  for (size_t i = 0; i < a.key_dim; ++i) {
    const auto q = hn::Set(d, query[i]);
    for (size_t v = 0; v < kV; ++v) {
      out[v] = hn::MulAdd(q, load_f32(d, state.data + i * state.stride + v * kWidth), out[v]);
    }
  }
  for (size_t v = 0; v < kV; ++v) {
    hn::StoreU(out[v], d, a.out + (head * a.t + t) * a.value_dim + column + v * kWidth);
  }
}

// Computes all steps for kV vectors of columns. Between the first and the last step the columns are
// kept in `scratch`, where they are contiguous and stay in L1.
template <size_t kV, class D>
HWY_INLINE void delta_columns(D d, const DeltaRuleArgs& a, size_t column, float* scratch) {
  const StateView kept{scratch, kV * hn::MaxLanes(D())};
  const StateView last{a.final_state + column, a.value_dim};
  const float* from = a.initial_state + column;
  size_t from_stride = a.value_dim;
  for (size_t t = 0; t < a.t; ++t) {
    const StateView to = t + 1 < a.t ? kept : last;
    delta_step<kV>(d, a, t, column, from, from_stride, to);
    for (size_t head = 1; head < a.queries; ++head) read_state<kV>(d, a, head, t, column, to);
    from = kept.data;
    from_stride = kept.stride;
  }
}

// Computes columns [begin, end) of the state of one head; `scratch` holds key_dim * kStateCols
// values.
void delta_rule_task(const DeltaRuleArgs& a, size_t begin, size_t end, float* scratch) {
  constexpr size_t kV = 4;
  static_assert(kV * kLanes <= kStateCols);
  size_t c = begin;
  for (; c + kV * kLanes <= end; c += kV * kLanes) delta_columns<kV>(F32(), a, c, scratch);
  for (; c + kLanes <= end; c += kLanes) delta_columns<1>(F32(), a, c, scratch);
  for (; c < end; ++c) delta_columns<1>(F32x1(), a, c, scratch);
}

}  // namespace HWY_NAMESPACE
}  // namespace ferry::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <algorithm>
#include <functional>

#include "kernels/compute.h"
#include "kernels/compute_scratch.h"

namespace ferry::kernels {
namespace {

HWY_EXPORT(delta_rule_task);

}  // namespace

void gated_delta_rule_f32(const DeltaRuleShape& shape, const float* query, const float* key,
                          const float* value, const float* decay, const float* beta,
                          const float* initial_state, float* out, float* final_state,
                          ThreadPool& pool) {
  if (shape.batch <= 0 || shape.heads <= 0) return;
  const size_t heads = size_t(shape.batch) * size_t(shape.heads), t = size_t(shape.t);
  const size_t k = size_t(shape.key_dim), v = size_t(shape.value_dim);
  const size_t queries = size_t(shape.queries);
  if (t == 0) {
    if (final_state != initial_state) std::copy_n(initial_state, heads * k * v, final_state);
    return;
  }
  const size_t strips = (v + kStateCols - 1) / kStateCols;
  const auto run = [&](size_t task) {
    const size_t head = task / strips, begin = task % strips * kStateCols;
    const DeltaRuleArgs args{t,
                             k,
                             v,
                             queries,
                             shape.decay_per_key,
                             query + head * queries * t * k,
                             key + head * t * k,
                             value + head * t * v,
                             decay + head * t * (shape.decay_per_key ? k : 1),
                             beta + head * t,
                             initial_state + head * k * v,
                             out + head * queries * t * v,
                             final_state + head * k * v};
    // A single step needs no memory for the state in between.
    const Scratch scratch(t > 1 ? k * kStateCols : 0);
    HWY_DYNAMIC_DISPATCH(delta_rule_task)
    (args, begin, std::min(v, begin + kStateCols), scratch.data());
  };
  pool.parallel_for(heads * strips, std::ref(run));
}

}  // namespace ferry::kernels
#endif  // HWY_ONCE
