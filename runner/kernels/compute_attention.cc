// Attention over caches, bmm, and the gated delta rule.
#include "runner/kernels/compute_targets.h"
// After the choice of targets.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runner/kernels/compute_attention.cc"
#include "hwy/foreach_target.h"
// After foreach_target.
#include "runner/kernels/compute_tile-inl.h"
#include "runner/kernels/compute_weighted-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ferry::kernels {
namespace HWY_NAMESPACE {

constexpr float kMinusInfinity = -__builtin_inff();

// out = a * b, rows [begin, end) of one batch.
void bmm_task(const WeightedSums& sums) {
  for (size_t i = 0; i < sums.m; ++i) {
    std::memset(sums.out + i * sums.out_stride, 0, sums.width * sizeof(float));
  }
  weighted_sums(sums);
}

// ---- attention

// What a task works on: a block of queries of all heads that share a kv head.
struct Attention {
  const SdpaArgs& args;
  size_t batch, kv_head;
  size_t first, count;  // queries
  float* query;         // (count * group, padded_dim)
  float* sums;          // (count * group, padded_dim), weighted by e^(score - top)
  float* scores;        // (count * group, kKeyBlock)
  float* top;           // (count * group), largest score so far
  float* total;         // (count * group), sum of the weights so far

  // Keys that query i of the block sees.
  size_t seen(size_t i) const {
    if (!args.causal || args.mask) return args.context;
    const size_t n = args.start_pos + first + i + 1;
    return n < args.context ? n : args.context;
  }
  const float* row(const float* cache, size_t key) const {
    return cache + ((batch * args.context + key) * args.kv_heads + kv_head) * args.dim;
  }
  // Of query i, for head 0 of the group; the heads of a group lie one after the other.
  size_t query_offset(size_t i) const {
    return (((batch * args.t) + first + i) * args.heads + kv_head * args.group()) * args.dim;
  }
};

void load_queries(const Attention& a) {
  const size_t group = a.args.group(), dim = a.args.dim, padded = a.args.padded_dim();
  for (size_t r = 0; r < a.count * group; ++r) {
    const float* from = a.args.query + a.query_offset(r / group) + r % group * dim;
    std::memcpy(a.query + r * padded, from, dim * sizeof(float));
    std::memset(a.query + r * padded + dim, 0, (padded - dim) * sizeof(float));
    std::memset(a.sums + r * padded, 0, padded * sizeof(float));
    a.top[r] = kMinusInfinity;
    a.total[r] = 0.0f;
  }
}

// Scores of keys [key + begin, key + end) for the queries [i, i_end).
void score(const Attention& a, size_t i, size_t i_end, size_t key, size_t begin, size_t end) {
  const size_t group = a.args.group(), padded = a.args.padded_dim();
  const RowProducts p{a.query + i * group * padded,
                      padded,
                      (i_end - i) * group,
                      a.row(a.args.key, key),
                      a.args.kv_heads * a.args.dim,
                      a.scores + i * group * kKeyBlock,
                      kKeyBlock,
                      a.args.dim};
  products<float>(p, begin, end);
}

void add_values(const Attention& a, size_t i, size_t i_end, size_t key, size_t begin, size_t end) {
  const size_t group = a.args.group(), padded = a.args.padded_dim();
  weighted_sums({a.scores + i * group * kKeyBlock + begin, kKeyBlock, (i_end - i) * group,
                 a.row(a.args.value, key + begin), a.args.kv_heads * a.args.dim, end - begin,
                 a.sums + i * group * padded, padded, a.args.dim});
}

// scores = scores * scale + mask over n keys, then minus infinity up to a whole vector; returns the
// largest.
HWY_INLINE float scale_scores(float* scores, const float* mask, float scale, size_t n) {
  const F32 d;
  const F32x1 d1;
  size_t j = 0;
  for (; j + kLanes <= n; j += kLanes) {
    const VF32 m = mask ? load_f32(d, mask + j) : hn::Zero(d);
    hn::StoreU(hn::MulAdd(load_f32(d, scores + j), hn::Set(d, scale), m), d, scores + j);
  }
  for (; j < n; ++j) {
    const auto m = mask ? load_f32(d1, mask + j) : hn::Zero(d1);
    hn::StoreU(hn::MulAdd(load_f32(d1, scores + j), hn::Set(d1, scale), m), d1, scores + j);
  }
  for (; j % kLanes != 0; ++j) scores[j] = kMinusInfinity;
  VF32 top = hn::Set(d, kMinusInfinity);
  for (size_t c = 0; c < n; c += kLanes) top = hn::Max(top, load_f32(d, scores + c));
  return hn::GetLane(hn::MaxOfLanes(d, top));
}

// Turns the scores of row r into weights and brings what was summed before to the new maximum.
void weigh(const Attention& a, size_t r, const float* mask, size_t n) {
  const F32 d;
  const F32x1 d1;
  float* scores = a.scores + r * kKeyBlock;
  const float block_top = scale_scores(scores, mask, a.args.scale, n);
  const float top = block_top <= a.top[r] ? a.top[r] : block_top;  // NaN is kept
  if (top == kMinusInfinity) {  // nothing but masked keys so far: weights 0, not e^NaN
    std::memset(scores, 0, n * sizeof(float));
    return;
  }
  VF32 total = hn::Zero(d);
  for (size_t j = 0; j < n; j += kLanes) {
    const VF32 weight = exp_lanes(d, hn::Sub(load_f32(d, scores + j), hn::Set(d, top)));
    hn::StoreU(weight, d, scores + j);
    total = hn::Add(total, weight);
  }
  const float kept = hn::GetLane(exp_lanes(d1, hn::Set(d1, a.top[r] - top)));
  a.total[r] = a.total[r] * kept + sum1(total);
  a.top[r] = top;
  if (kept == 1.0f) return;
  float* sums = a.sums + r * a.args.padded_dim();
  for (size_t c = 0; c < a.args.padded_dim(); c += kLanes) {
    hn::StoreU(hn::Mul(load_f32(d, sums + c), hn::Set(d, kept)), d, sums + c);
  }
}

bool all_masked(const Attention& a, size_t key, size_t n) {
  for (size_t i = 0; i < a.count; ++i) {
    const float* mask = a.args.mask + (a.first + i) * a.args.context + key;
    for (size_t j = 0; j < n; ++j) {
      if (mask[j] != kMinusInfinity) return false;
    }
  }
  return true;
}

// One block of keys. Queries see at least as many of its keys as the query before: what the first
// one sees is done for all together, the rest for each query alone.
void attend(const Attention& a, size_t key) {
  const size_t group = a.args.group();
  const auto in_block = [&](size_t i) {
    const size_t n = a.seen(i) - key;
    return n < kKeyBlock ? n : kKeyBlock;
  };
  size_t i0 = 0;
  while (a.seen(i0) <= key) ++i0;
  const size_t common = in_block(i0);
  if (a.args.mask && all_masked(a, key, common)) return;
  score(a, i0, a.count, key, 0, common);
  for (size_t i = i0; i < a.count; ++i) {
    if (in_block(i) > common) score(a, i, i + 1, key, common, in_block(i));
    const float* mask = a.args.mask ? a.args.mask + (a.first + i) * a.args.context + key : nullptr;
    for (size_t h = 0; h < group; ++h) weigh(a, i * group + h, mask, in_block(i));
  }
  add_values(a, i0, a.count, key, 0, common);
  for (size_t i = i0; i < a.count; ++i) {
    if (in_block(i) > common) add_values(a, i, i + 1, key, common, in_block(i));
  }
}

// A row that saw no key, or only keys masked with minus infinity, is zero.
void write_out(const Attention& a) {
  const size_t group = a.args.group(), dim = a.args.dim;
  for (size_t r = 0; r < a.count * group; ++r) {
    const float* sums = a.sums + r * a.args.padded_dim();
    float* out = a.args.out + a.query_offset(r / group) + r % group * dim;
    const float total = a.total[r] == 0.0f ? 1.0f : a.total[r];
    for (size_t c = 0; c < dim; ++c) out[c] = sums[c] / total;
  }
}

Attention attention(const SdpaArgs& args, size_t block, size_t head, float* scratch) {
  const size_t first = block * args.block, rows = args.rows(), padded = args.padded_dim();
  const size_t count = args.t - first < args.block ? args.t - first : args.block;
  float* const sums = scratch + rows * padded;
  float* const scores = sums + rows * padded;
  float* const top = scores + rows * kKeyBlock;
  return {args,
          head / args.kv_heads,
          head % args.kv_heads,
          first,
          count,
          scratch,
          sums,
          scores,
          top,
          top + rows};
}

// A block of queries of kv heads [begin, end), counted through the batch. The heads take turns at
// each block of keys, because their keys lie side by side.
void sdpa_task(const SdpaArgs& args, size_t block, size_t begin, size_t end, float* scratch) {
  const auto head = [&](size_t h) {
    return attention(args, block, h, scratch + (h - begin) * args.scratch());
  };
  for (size_t h = begin; h < end; ++h) load_queries(head(h));
  const Attention any = head(begin);
  const size_t seen = any.seen(any.count - 1);
  for (size_t key = 0; key < seen; key += kKeyBlock) {
    for (size_t h = begin; h < end; ++h) attend(head(h), key);
  }
  for (size_t h = begin; h < end; ++h) write_out(head(h));
}

// ---- gated delta rule

// Columns of a state, (key_dim, kV vectors).
struct StateView {
  float* data;
  size_t stride;
};

// One time step of kV vectors of columns, from one state to another (or the same).
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

// All steps for kV vectors of columns. Between the first and the last step the columns live in
// `scratch`, where they lie together in L1.
template <size_t kV, class D>
HWY_INLINE void delta_columns(D d, const DeltaRuleArgs& a, size_t column, float* scratch) {
  const StateView kept{scratch, kV * hn::MaxLanes(D())};
  const StateView last{a.final_state + column, a.value_dim};
  const float* from = a.initial_state + column;
  size_t from_stride = a.value_dim;
  for (size_t t = 0; t < a.t; ++t) {
    const StateView to = t + 1 < a.t ? kept : last;
    delta_step<kV>(d, a, t, column, from, from_stride, to);
    from = kept.data;
    from_stride = kept.stride;
  }
}

// Columns [begin, end) of the state of one head; `scratch` holds key_dim * kStateCols values.
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

#include "runner/kernels/compute.h"
#include "runner/kernels/compute_scratch.h"

namespace ferry::kernels {
namespace {

HWY_EXPORT(bmm_task);
HWY_EXPORT(sdpa_task);
HWY_EXPORT(delta_rule_task);

constexpr size_t kBmmRows = 32;
constexpr size_t kBmmCols = 256;
constexpr size_t kAttentionRows = 32;
constexpr size_t kFewRows = 16;

size_t parts(size_t n, size_t size) { return (n + size - 1) / size; }

}  // namespace

void bmm_f32(const float* a, const float* b, float* out, int64_t batch, int64_t m, int64_t n,
             int64_t k, ThreadPool& pool) {
  if (batch <= 0 || m <= 0 || n <= 0) return;
  const size_t rows = size_t(m), cols = size_t(n), depth = size_t(k);
  const size_t row_parts = parts(rows, kBmmRows), col_parts = parts(cols, kBmmCols);
  const auto run = [&](size_t task) {
    const size_t j = task % col_parts * kBmmCols;
    const size_t i = task / col_parts % row_parts * kBmmRows;
    const size_t item = task / col_parts / row_parts;
    HWY_DYNAMIC_DISPATCH(bmm_task)
    ({a + (item * rows + i) * depth, depth, std::min(kBmmRows, rows - i),
      b + item * depth * cols + j, cols, depth, out + (item * rows + i) * cols + j, cols,
      std::min(kBmmCols, cols - j)});
  };
  pool.parallel_for(size_t(batch) * row_parts * col_parts, std::ref(run));
}

void sdpa_f32(const SdpaShape& shape, const float* query, const float* key, const float* value,
              const float* mask, bool causal, int64_t start_pos, float scale, float* out,
              ThreadPool& pool) {
  if (shape.batch <= 0 || shape.t <= 0 || shape.heads <= 0 || shape.dim <= 0) return;
  SdpaArgs args{size_t(shape.batch),
                size_t(shape.t),
                size_t(shape.heads),
                size_t(shape.kv_heads),
                size_t(shape.dim),
                size_t(shape.context),
                query,
                key,
                value,
                mask,
                causal,
                size_t(start_pos),
                scale,
                out,
                0,
                0};
  args.block = std::min(args.t, std::max<size_t>(1, kAttentionRows / args.group()));
  args.blocks = parts(args.t, args.block);
  // A single query is bound by memory: then a task takes neighbouring heads, if enough tasks
  // remain.
  const size_t heads = args.batch * args.kv_heads;
  const bool few = args.t * args.group() <= kFewRows;
  const size_t step = few ? parts(heads, pool.size()) : 1;
  const size_t tasks = parts(heads, step);
  const size_t size = step * args.scratch();
  // The few tasks of a step of decoding get their memory here: which thread would need some is left
  // to chance, and so would be whether decoding allocates.
  const Scratch shared(few ? tasks * args.blocks * size : 0);
  const auto run = [&](size_t task) {
    const Scratch own(few ? 0 : size);
    const size_t block = args.blocks - 1 - task % args.blocks;  // the longest first
    const size_t begin = task / args.blocks * step, end = std::min(heads, begin + step);
    HWY_DYNAMIC_DISPATCH(sdpa_task)
    (args, block, begin, end, few ? shared.data() + task * size : own.data());
  };
  pool.parallel_for(tasks * args.blocks, std::ref(run));
}

void gated_delta_rule_f32(const DeltaRuleShape& shape, const float* query, const float* key,
                          const float* value, const float* decay, const float* beta,
                          const float* initial_state, float* out, float* final_state,
                          ThreadPool& pool) {
  if (shape.batch <= 0 || shape.heads <= 0) return;
  const size_t heads = size_t(shape.batch) * size_t(shape.heads), t = size_t(shape.t);
  const size_t k = size_t(shape.key_dim), v = size_t(shape.value_dim);
  if (t == 0) {
    if (final_state != initial_state) std::copy_n(initial_state, heads * k * v, final_state);
    return;
  }
  const size_t strips = parts(v, kStateCols);
  const auto run = [&](size_t task) {
    const size_t head = task / strips, begin = task % strips * kStateCols;
    const DeltaRuleArgs args{t,
                             k,
                             v,
                             shape.decay_per_key,
                             query + head * t * k,
                             key + head * t * k,
                             value + head * t * v,
                             decay + head * t * (shape.decay_per_key ? k : 1),
                             beta + head * t,
                             initial_state + head * k * v,
                             out + head * t * v,
                             final_state + head * k * v};
    // Only several steps keep the state in between.
    const Scratch scratch(t > 1 ? k * kStateCols : 0);
    HWY_DYNAMIC_DISPATCH(delta_rule_task)
    (args, begin, std::min(v, begin + kStateCols), scratch.data());
  };
  pool.parallel_for(heads * strips, std::ref(run));
}

}  // namespace ferry::kernels
#endif  // HWY_ONCE
