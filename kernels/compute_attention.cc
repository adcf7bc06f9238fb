// Attention over caches, and bmm.
#include "kernels/compute_targets.h"
// This include must follow the choice of targets.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/compute_attention.cc"
#include "hwy/foreach_target.h"
// This include must follow foreach_target.h.
#include "kernels/compute_tile-inl.h"
#include "kernels/compute_weighted-inl.h"
#include "kernels/seen_columns.h"

HWY_BEFORE_NAMESPACE();
namespace ferry::kernels {
namespace HWY_NAMESPACE {

constexpr float kMinusInfinity = -__builtin_inff();

// Computes out = a * b for rows [begin, end) of one batch.
void bmm_task(const WeightedSums& sums) {
  for (size_t i = 0; i < sums.m; ++i) {
    std::memset(sums.out + i * sums.out_stride, 0, sums.width * sizeof(float));
  }
  weighted_sums(sums);
}

// ---- attention

// Computes a block of queries of all heads that share a kv head, over a chunk of keys.
struct Attention {
  const SdpaArgs& args;
  size_t batch, kv_head;
  size_t first, count;  // queries
  float* query;         // (count * group, padded_dim)
  float* sums;          // (count * group, padded_dim), weighted by e^(score - top)
  float* scores;        // (count * group, kKeyBlock)
  float* top;           // (count * group), largest score of the keys so far
  float* total;         // (count * group), sum of the weights so far

  // Returns the number of keys that query i of the block sees.
  size_t seen(size_t i) const { return args.seen(first + i + 1); }
  // Returns the row of a key, counted in rows of one head.
  size_t row(size_t key) const { return (batch * args.context + key) * args.kv_heads + kv_head; }
  // Returns the offset of query i for head 0 of the group. The heads of a group are adjacent.
  size_t query_offset(size_t i) const {
    return (((batch * args.t) + first + i) * args.heads + kv_head * args.group()) * args.dim;
  }
};

Attention attention(const SdpaArgs& args, const SdpaTask& task, size_t head) {
  const size_t first = task.block * args.block, rows = args.rows();
  const size_t count = args.t - first < args.block ? args.t - first : args.block;
  float* const query = task.query + (head - task.begin) * args.query_values();
  float* const sums = task.sums + (head - task.begin) * task.sums_stride;
  float* const scores = sums + rows * args.padded_dim();
  float* const top = scores + rows * kKeyBlock;
  const size_t batch = head / args.kv_heads;
  return {args, batch, head % args.kv_heads, first, count, query, sums, scores, top, top + rows};
}

void load_queries(const Attention& a) {
  const size_t group = a.args.group(), dim = a.args.dim, padded = a.args.padded_dim();
  for (size_t r = 0; r < a.count * group; ++r) {
    const float* from = a.args.query + a.query_offset(r / group) + r % group * dim;
    std::memcpy(a.query + r * padded, from, dim * sizeof(float));
    std::memset(a.query + r * padded + dim, 0, (padded - dim) * sizeof(float));
  }
}

void start_sums(const Attention& a) {
  const size_t rows = a.count * a.args.group(), padded = a.args.padded_dim();
  std::memset(a.sums, 0, rows * padded * sizeof(float));
  for (size_t r = 0; r < rows; ++r) {
    a.top[r] = kMinusInfinity;
    a.total[r] = 0.0f;
  }
}

// Rows of a cache as f32.
struct KeyRows {
  const float* at;
  size_t stride;
};

template <class T>
KeyRows widened(const Attention& a, const StoredRows& cache, size_t key, size_t n, float* tile) {
  const size_t dim = a.args.dim;
  for (size_t j = 0; j < n; ++j) {
    const size_t row = a.row(key + j);
    Stored<T> from{static_cast<const T*>(cache.at) + row * dim, 1.0f, 0};
    if constexpr (std::is_integral_v<T>) {
      from.scale = cache.scales[row];
      from.zero_point = cache.zero_points[row];
    }
    widen_stored(from, dim, tile + j * dim);
  }
  return {tile, dim};
}

// Returns n keys from `key` on, in the cache's memory or converted into `tile`.
KeyRows key_rows(const Attention& a, const StoredRows& cache, size_t key, size_t n, float* tile) {
  switch (cache.dtype) {
    case DType::kI8:
      return widened<int8_t>(a, cache, key, n, tile);
    case DType::kF16:
      return widened<F16>(a, cache, key, n, tile);
    case DType::kBF16:
      return widened<BF16>(a, cache, key, n, tile);
    default: {
      const auto* rows = static_cast<const float*>(cache.at);
      return {rows + a.row(key) * a.args.dim, a.args.kv_heads * a.args.dim};
    }
  }
}

// Calls f(j, n, rows) for keys [key + begin, key + end), as many at a time as fit the tile.
template <class F>
HWY_INLINE void for_key_rows(const Attention& a, const StoredRows& cache, size_t key, size_t begin,
                             size_t end, const F& f) {
  HWY_ALIGN float tile[kMaxStoredDim];
  const size_t most = cache.dtype == DType::kF32 ? kKeyBlock : size_t(kMaxStoredDim) / a.args.dim;
  for (size_t j = begin; j < end; j += most) {
    const size_t n = j + most < end ? most : end - j;
    f(j, n, key_rows(a, cache, key + j, n, tile));
  }
}

// Computes the scores of keys [key + begin, key + end) for the queries [i, i_end).
void score(const Attention& a, size_t i, size_t i_end, size_t key, size_t begin, size_t end) {
  const size_t group = a.args.group(), padded = a.args.padded_dim();
  for_key_rows(a, a.args.key, key, begin, end, [&](size_t j, size_t n, const KeyRows& rows) {
    const RowProducts p{
        a.query + i * group * padded,         padded,    (i_end - i) * group, rows.at, rows.stride,
        a.scores + i * group * kKeyBlock + j, kKeyBlock, a.args.dim};
    products<float>(p, 0, n);
  });
}

void add_value_rows(const Attention& a, size_t i, size_t i_end, size_t j, size_t n,
                    const KeyRows& rows) {
  const size_t group = a.args.group(), padded = a.args.padded_dim();
  const WeightedSums sums{
      a.scores + i * group * kKeyBlock + j, kKeyBlock, (i_end - i) * group, rows.at, rows.stride, n,
      a.sums + i * group * padded,          padded,    a.args.dim};
  if (sums.m >= kTileRows) return weighted_sums(sums);
  stream_sums(Stored<float>{sums.rows, 1.0f, 0}, sums);
}

void add_values(const Attention& a, size_t i, size_t i_end, size_t key, size_t begin, size_t end) {
  for_key_rows(a, a.args.value, key, begin, end, [&](size_t j, size_t n, const KeyRows& rows) {
    add_value_rows(a, i, i_end, j, n, rows);
  });
}

// Computes scores * scale + mask over n keys, and pads with minus infinity to a whole vector.
// Returns the largest score.
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

void scale_sums(float* sums, float factor, size_t n) {
  const F32 d;
  for (size_t c = 0; c < n; c += kLanes) {
    hn::StoreU(hn::Mul(load_f32(d, sums + c), hn::Set(d, factor)), d, sums + c);
  }
}

// Returns e^(a - b), which rescales sums when a running maximum changes.
HWY_INLINE float exp_of_difference(float a, float b) {
  const F32x1 d1;
  return hn::GetLane(exp_lanes(d1, hn::Set(d1, a - b)));
}

// Turns the scores [begin, end) of row r into weights, and rescales the earlier sums to the new
// maximum.
void weigh(const Attention& a, size_t r, const float* mask, size_t begin, size_t end) {
  const F32 d;
  const size_t n = end - begin;
  float* scores = a.scores + r * kKeyBlock + begin;
  if (mask != nullptr) mask += begin;
  const float block_top = scale_scores(scores, mask, a.args.scale, n);
  const float top = block_top <= a.top[r] ? a.top[r] : block_top;  // NaN is kept
  if (top == kMinusInfinity) {  // only masked keys so far: weights are 0, not e^NaN
    std::memset(scores, 0, n * sizeof(float));
    return;
  }
  VF32 total = hn::Zero(d);
  for (size_t j = 0; j < n; j += kLanes) {
    const VF32 weight = exp_lanes(d, hn::Sub(load_f32(d, scores + j), hn::Set(d, top)));
    hn::StoreU(weight, d, scores + j);
    total = hn::Add(total, weight);
  }
  const float kept = exp_of_difference(a.top[r], top);
  a.total[r] = a.total[r] * kept + sum1(total);
  a.top[r] = top;
  if (kept != 1.0f) scale_sums(a.sums + r * a.args.padded_dim(), kept, a.args.padded_dim());
}

// Adds the sums of a chunk of keys to the sums of the earlier chunks.
void join(const Attention& chunk, const Attention& to) {
  const F32 d;
  const size_t padded = to.args.padded_dim();
  for (size_t r = 0; r < to.count * to.args.group(); ++r) {
    if (chunk.top[r] == kMinusInfinity) continue;  // the query saw no key of the chunk
    const float top = chunk.top[r] <= to.top[r] ? to.top[r] : chunk.top[r];
    const float kept = exp_of_difference(to.top[r], top);
    const float added = exp_of_difference(chunk.top[r], top);
    to.total[r] = to.total[r] * kept + chunk.total[r] * added;
    to.top[r] = top;
    float* sums = to.sums + r * padded;
    const float* more = chunk.sums + r * padded;
    for (size_t c = 0; c < padded; c += kLanes) {
      const VF32 before = hn::Mul(load_f32(d, sums + c), hn::Set(d, kept));
      hn::StoreU(hn::MulAdd(load_f32(d, more + c), hn::Set(d, added), before), d, sums + c);
    }
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

// Returns whether some value of a mask is above `least`, or is NaN.
HWY_INLINE bool any_above(const float* mask, size_t n, float least) {
  const F32 d;
  const VF32 limit = hn::Set(d, least);
  size_t j = 0;
  for (; j + kLanes <= n; j += kLanes) {
    if (!hn::AllTrue(d, hn::Le(load_f32(d, mask + j), limit))) return true;
  }
  for (; j < n; ++j) {
    if (!(mask[j] <= least)) return true;
  }
  return false;
}

// The keys [begin, end) that some query of the block sees. `begin` is a multiple of kMaxLanes.
struct SeenKeys {
  size_t begin, end;
};

bool shows(const Attention& a, size_t begin, size_t end) {
  for (size_t i = 0; i < a.count; ++i) {
    const float* mask = a.args.mask + (a.first + i) * a.args.context;
    if (any_above(mask + begin, end - begin, -kHidden)) return true;
  }
  return false;
}

// Returns the range without which every sum has the same bits: the weights of hidden keys are 0 in
// a row where the mask does not lower some key.
SeenKeys seen_keys(const Attention& a) {
  constexpr float kLowered = -__FLT_DENORM_MIN__;
  SeenKeys seen{0, a.args.context};
  if (a.args.mask == nullptr) return seen;
  while (seen.begin + kMaxLanes < seen.end && !shows(a, seen.begin, seen.begin + kMaxLanes)) {
    seen.begin += kMaxLanes;
  }
  while (seen.end > seen.begin + kMaxLanes && !shows(a, seen.end - kMaxLanes, seen.end)) {
    seen.end -= kMaxLanes;
  }
  for (size_t i = 0; i < a.count; ++i) {
    const float* mask = a.args.mask + (a.first + i) * a.args.context;
    if (!any_above(mask + seen.begin, seen.end - seen.begin, kLowered)) return {0, a.args.context};
  }
  return seen;
}

// A block of keys. The first query that sees any of its keys sees `common` keys; later queries see
// more. The common keys are computed for all queries together, the rest for each query alone.
struct KeyBlock {
  size_t key, first, common;
  size_t end = kKeyBlock;  // no query sees a later key

  KeyBlock(const Attention& a, size_t from) : key(from), first(0) {
    while (a.seen(first) <= key) ++first;
    common = seen(a, first);
  }
  size_t seen(const Attention& a, size_t i) const {
    const size_t n = a.seen(i) - key;
    return n < end ? n : end;
  }
};

// With a mask, only the keys from `begin` on are weighed.
void score_rest_and_weigh(const Attention& a, const KeyBlock& b, size_t begin) {
  for (size_t i = b.first; i < a.count; ++i) {
    const size_t seen = b.seen(a, i);
    if (seen > b.common) score(a, i, i + 1, b.key, b.common, seen);
    const float* mask = a.args.mask;
    if (mask != nullptr) mask += (a.first + i) * a.args.context + b.key;
    for (size_t h = 0; h < a.args.group(); ++h) weigh(a, i * a.args.group() + h, mask, begin, seen);
  }
}

void add_rest(const Attention& a, const KeyBlock& b) {
  for (size_t i = b.first; i < a.count; ++i) {
    if (b.seen(a, i) > b.common) add_values(a, i, i + 1, b.key, b.common, b.seen(a, i));
  }
}

// Computes one block of keys for `count` heads. The heads take turns at a few keys, whose rows are
// adjacent.
void attend(const Attention* heads, size_t count, size_t key, const SeenKeys& keys) {
  const Attention& any = heads[0];
  KeyBlock b(any, key);
  if (keys.end <= key || keys.begin >= key + b.common) return;
  const size_t begin = keys.begin > key ? keys.begin - key : 0;
  if (keys.end - key < b.common) b.end = b.common = keys.end - key;
  if (any.args.mask && all_masked(any, key, b.common)) return;
  const size_t rows = (any.count - b.first) * any.args.group();
  const size_t turn = count == 1 ? kKeyBlock : rows < kTileRows ? 8 : 12;
  const auto in_turn = [&](auto&& work) {
    for (size_t j = begin; j < b.common; j += turn) {
      const size_t end = j + turn < b.common ? j + turn : b.common;
      for (size_t h = 0; h < count; ++h) work(heads[h], b.first, heads[h].count, key, j, end);
    }
  };
  in_turn(score);
  for (size_t h = 0; h < count; ++h) score_rest_and_weigh(heads[h], b, begin);
  in_turn(add_values);
  for (size_t h = 0; h < count; ++h) add_rest(heads[h], b);
}

// Computes the keys of one chunk that the last query sees.
void attend_chunk(const Attention* heads, size_t count, size_t chunk) {
  for (size_t h = 0; h < count; ++h) start_sums(heads[h]);
  const size_t seen = heads[0].seen(heads[0].count - 1), end = (chunk + 1) * kKeyChunk;
  const SeenKeys keys = seen_keys(heads[0]);
  for (size_t key = chunk * kKeyChunk; key < (end < seen ? end : seen); key += kKeyBlock) {
    attend(heads, count, key, keys);
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

// Computes all chunks of one head. task.sums has two times chunk_values() values.
void sdpa_whole_task(const SdpaArgs& args, const SdpaTask& task) {
  const Attention all = attention(args, task, task.begin);
  SdpaTask next = task;
  next.sums += args.chunk_values();
  const Attention chunk = attention(args, next, task.begin);
  load_queries(all);
  attend_chunk(&all, 1, 0);
  for (size_t c = 1; c < args.chunks(task.block); ++c) {
    attend_chunk(&chunk, 1, c);
    join(chunk, all);
  }
  write_out(all);
}

void sdpa_load_task(const SdpaArgs& args, const SdpaTask& task) {
  for (size_t h = task.begin; h < task.end; ++h) load_queries(attention(args, task, h));
}

// Computes one chunk of up to kTurnHeads heads. No task reads the scores of another head.
void sdpa_chunk_task(const SdpaArgs& args, const SdpaTask& task) {
  static_assert(kTurnHeads == 8);
  const auto head = [&](size_t i) {
    const size_t h = task.begin + i;
    return attention(args, task, h < task.end ? h : task.begin);
  };
  const Attention heads[] = {head(0), head(1), head(2), head(3),
                             head(4), head(5), head(6), head(7)};
  attend_chunk(heads, task.end - task.begin, task.chunk);
}

// Joins the chunks of the heads. They lie chunk_values() apart.
void sdpa_join_task(const SdpaArgs& args, const SdpaTask& task) {
  for (size_t h = task.begin; h < task.end; ++h) {
    const Attention all = attention(args, task, h);
    SdpaTask next = task;
    for (size_t c = 1; c < args.chunks(task.block); ++c) {
      next.sums += args.chunk_values();
      join(attention(args, next, h), all);
    }
    write_out(all);
  }
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

HWY_EXPORT(bmm_task);
HWY_EXPORT(sdpa_whole_task);
HWY_EXPORT(sdpa_load_task);
HWY_EXPORT(sdpa_chunk_task);
HWY_EXPORT(sdpa_join_task);

constexpr size_t kBmmRows = 32;
constexpr size_t kBmmCols = 256;
constexpr size_t kAttentionRows = 32;

size_t parts(size_t n, size_t size) { return (n + size - 1) / size; }

// Runs a task for each block of queries and head.
void sdpa_whole(const SdpaArgs& args, ThreadPool& pool) {
  const auto run = [&](size_t index) {
    const Scratch own(args.query_values() + 2 * args.chunk_values());
    const size_t block = args.blocks - 1 - index % args.blocks;  // the longest block first
    const size_t head = index / args.blocks;
    HWY_DYNAMIC_DISPATCH(sdpa_whole_task)
    (args, {block, head, head + 1, 0, own.data(), own.data() + args.query_values(), 0});
  };
  pool.parallel_for(args.batch * args.kv_heads * args.blocks, std::ref(run));
}

// Runs a task for some heads and each chunk of keys. A single query is bound by memory, so heads
// that lie side by side stay in one task if enough tasks remain.
void sdpa_split(const SdpaArgs& args, ThreadPool& pool) {
  const size_t heads = args.batch * args.kv_heads;
  const size_t most = parts(std::max<size_t>(1, args.context), kKeyChunk);
  const size_t stride = most * args.chunk_values();
  // The scratch memory is allocated here, of equal size in every call. If threads allocated it,
  // chance would decide which thread needs some, and so whether decoding allocates.
  const size_t queries = args.blocks * heads * args.query_values();
  const Scratch scratch(queries + args.blocks * heads * stride);
  const auto task = [&](size_t block, size_t begin, size_t end, size_t chunk) {
    const size_t head = block * heads + begin;
    float* const sums = scratch.data() + queries + head * stride + chunk * args.chunk_values();
    return SdpaTask{block, begin, end, chunk, scratch.data() + head * args.query_values(),
                    sums,  stride};
  };
  for (size_t block = 0; block < args.blocks; ++block) {
    HWY_DYNAMIC_DISPATCH(sdpa_load_task)(args, task(block, 0, heads, 0));
  }
  const size_t chunks = args.chunks(args.blocks - 1);
  const bool many = chunks * args.blocks >= 4 * pool.size();
  const size_t step = std::min(kTurnHeads, many ? heads : parts(heads, pool.size()));
  const size_t steps = parts(heads, step);
  const auto run = [&](size_t index) {
    const size_t begin = index % steps * step, block = index / steps % args.blocks;
    const size_t chunk = index / steps / args.blocks;
    if (chunk >= args.chunks(block)) return;
    HWY_DYNAMIC_DISPATCH(sdpa_chunk_task)
    (args, task(block, begin, std::min(heads, begin + step), chunk));
  };
  pool.parallel_for(steps * args.blocks * chunks, std::ref(run));
  for (size_t block = 0; block < args.blocks; ++block) {
    HWY_DYNAMIC_DISPATCH(sdpa_join_task)(args, task(block, 0, heads, 0));
  }
}

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

void sdpa_f32(const SdpaShape& shape, const float* query, const StoredRows& key,
              const StoredRows& value, const float* mask, bool causal, int64_t start_pos,
              float scale, float* out, ThreadPool& pool) {
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
  const bool few = args.t * args.group() <= kFewQueryRows;
  if (few || args.blocks * args.batch * args.kv_heads < 2 * pool.size()) {
    sdpa_split(args, pool);
  } else {
    sdpa_whole(args, pool);
  }
}

}  // namespace ferry::kernels
#endif  // HWY_ONCE
